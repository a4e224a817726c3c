/*
 * The walls between a command and the host, each by the name that tests/attacks uses. To show what
 * each holds back, the tests build a second daemon (SBX_WEAK) without those that its environment
 * names. In the program itself all stand: the question is answered while compiling.
 */
#ifndef SANDBOXFS_MITIGATIONS_H
#define SANDBOXFS_MITIGATIONS_H

#ifdef SBX_WEAK
#include <stdbool.h>

/* Thread-safe. */
bool sbx_mitigation_off(const char *wall);
#else
#define sbx_mitigation_off(wall) false
#endif

#endif
