/* A box that is nothing but a temporary directory, for tests of what works on trees. */
#ifndef SANDBOXFS_TESTS_PLAIN_BOX_H
#define SANDBOXFS_TESTS_PLAIN_BOX_H

#include <stdbool.h>

struct plain_box;
struct sbx_box;

struct plain_box *plain_box_create(void);
/* Removes the directory and everything in it. */
void plain_box_destroy(struct plain_box *pb);
struct sbx_box *plain_box_get(struct plain_box *pb);
int plain_box_root(struct plain_box *pb);
void plain_box_set_alive(struct plain_box *pb, bool alive);

#endif
