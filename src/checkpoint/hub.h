/* hub.h - advice about a directory that may belong to the local hub cache. Only checkpoint.c and hub.c include it;
 * checkpoint_resolve, which hub.c defines, is declared in checkpoint.h. */
#ifndef EAGLET_CHECKPOINT_HUB_H
#define EAGLET_CHECKPOINT_HUB_H

/* "; get the rest with `hf download org/name`" for a snapshot of a hub cache (and how many downloads are unfinished), "" for any
 * other directory. Heap. */
char *hub_advice(const char *directory);

#endif
