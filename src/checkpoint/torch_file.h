/* torch_file.h - files of torch.save since 1.6, a zip of stored records whose data.pkl is a pickle of protocol 2: a state dict of tensors
 * (pytorch_model.bin), or a training sample, which nests.
 *
 * Reads exactly the opcodes of such files, and of the callables a pickle may name exactly those that make tensors: they are
 * recognised, never called, and nothing of the file is ever run. Anything else is refused by name: other opcodes and callables, views
 * that are not contiguous, values that are not tensors, archives with compressed records, big-endian ones, files of older versions.
 * Time and memory are linear in the size of data.pkl.
 */
#ifndef EAGLET_CHECKPOINT_TORCH_FILE_H
#define EAGLET_CHECKPOINT_TORCH_FILE_H

#include "checkpoint/safetensors.h"

/* The same struct that a safetensors file fills: mapped, tensors sorted by name; closed by safetensors_close. It has no header and no
 * metadata, and tensors may share bytes. */
enum eaglet_status torch_file_open(struct safetensors *file, const char *path, struct eaglet_error *err) MUST_USE;
/* A dict that holds more than tensors: dicts, lists and tuples inside each other, numbers, text, None. A tensor's name is its path
 * ("hidden_states.3"), numbers and text are metadata under theirs. At most 8 deep and 4096 values. A gzip file is unpacked into memory,
 * up to 8 GiB. */
enum eaglet_status torch_file_open_nested(struct safetensors *file, const char *path, struct eaglet_error *err) MUST_USE;

#endif
