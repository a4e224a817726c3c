/*
 * The walls between a command and the host, each by the name that tests/attacks uses. To show what
 * each holds back, the tests build a second daemon (SBX_WEAK) without those that its environment
 * names. In the program itself all stand: the question is answered while compiling.
 */
#ifndef SANDBOXFS_WALLS_H
#define SANDBOXFS_WALLS_H

#ifdef SBX_WEAK
#include <stdbool.h>

/* Thread-safe. */
bool sbx_without(const char *wall);
#else
#define sbx_without(wall) false
#endif

#endif
