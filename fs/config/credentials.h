/* The names that secrets are kept under, and how they look. Thread-safe. */
#ifndef SANDBOXFS_FS_CONFIG_CREDENTIALS_H
#define SANDBOXFS_FS_CONFIG_CREDENTIALS_H

#include <stdbool.h>

/* Whether NAME, of a file or directory, is one that secrets are kept under. */
bool sbx_is_credential(const char *name);
/* Whether nothing else is called so, however deep it lies. */
bool sbx_is_secret_store(const char *name);
/* Whether NAME, of the d_type TYPE, is a tool that has the name of its store. */
bool sbx_is_tool_of_store(const char *name, unsigned char type);
/* Whether VALUE names a secret, or has a part that may be a token. */
bool sbx_looks_secret(const char *value);

#endif
