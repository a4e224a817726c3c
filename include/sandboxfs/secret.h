/*
 * Secrets of the daemon's own. Most come by the environment, which every process forked from here
 * would inherit, and which /proc shows; so they are taken out of it and kept where a fork does not
 * copy them. They are handed on by handle: only who sends one to its server reads it.
 */
#ifndef SANDBOXFS_SECRET_H
#define SANDBOXFS_SECRET_H

struct sbx_secret;

/*
 * Takes the variable NAME out of the environment, its bytes included. *ret: its value, which reads
 * as empty in processes forked later and is in no core dump; NULL when it is not set or empty. 0 or
 * -errno (then it is taken out as well). While there is one thread.
 */
int sbx_secret_take(const char *name, struct sbx_secret **ret);
/* Keeps TEXT, which a service has told us, in the same way. 0 or -errno. Thread-safe. */
int sbx_secret_make(const char *text, struct sbx_secret **ret);
void sbx_secret_free(struct sbx_secret *secret); /* accepts NULL */
/* The bytes, borrowed and NUL-terminated; NULL for NULL. Any thread. */
const char *sbx_secret_text(const struct sbx_secret *secret);

#endif
