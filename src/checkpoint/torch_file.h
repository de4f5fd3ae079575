/* torch_file.h - pytorch_model.bin: a state dict of tensors as torch.save writes it since 1.6, a zip of stored records whose data.pkl
 * is a pickle of protocol 2.
 *
 * Reads exactly the opcodes of such a dict, and of the callables a pickle may name exactly those that make tensors: they are
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

#endif
