/* data_files.h - which files a list of paths stands for: files as they are, folders as their data files, patterns as what matches. Only dataset.c
 * uses it. */
#ifndef EAGLET_DATA_DATA_FILES_H
#define EAGLET_DATA_DATA_FILES_H

#include "base/file.h"

/* A folder means its files with a known ending (.jsonl .json .ndjson .parquet, each also with .gz or .zst), sorted by name, not those of folders
 * inside it; a path that is no file and has * ? or [ in it is a pattern of glob(3), sorted. What a folder or pattern leaves out goes to
 * *ignored. Nothing found is EAGLET_E_INPUT by name. Both lists are the caller's, on failure too. */
enum eaglet_status data_files_find(struct file_list *files, struct file_list *ignored, const char *const *paths, size_t n_paths,
                                   struct eaglet_error *err) MUST_USE;

/* The file's name without folder and known endings (else without the last one), cut at a whole character to fit size. "-" is stdin. */
void data_file_stem(char *stem, size_t size, const char *path);

#endif
