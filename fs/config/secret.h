/*
 * Secrets of the daemon's own. They come by the environment, which every process forked from here
 * would inherit, and which /proc shows; so they are taken out of it and kept where a fork does not
 * copy them.
 */
#ifndef SANDBOXFS_FS_CONFIG_SECRET_H
#define SANDBOXFS_FS_CONFIG_SECRET_H

/*
 * Takes the variable NAME out of the environment, its bytes included. *ret: its value, which reads
 * as empty in processes forked later and is in no core dump; NULL when it is not set or empty. 0 or
 * -errno (then it is taken out as well). While there is one thread.
 */
int sbx_secret_take(const char *name, char **ret);
void sbx_secret_free(char *secret); /* accepts NULL */

#endif
