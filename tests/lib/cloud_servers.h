/*
 * The server on the loopback that stands in for a cloud, with what a backend has to know of it in
 * the environment, and a git server that the cloud clones from: programs of their own. One cloud at
 * a time. What fails, fails the test.
 */
#ifndef SANDBOXFS_TESTS_CLOUD_SERVERS_H
#define SANDBOXFS_TESTS_CLOUD_SERVERS_H

/* Starts those of BACKEND (daytona, vercel, dagger) unless they run; any other's end. */
void cloud_start(const char *backend);
/* Ends them, and removes what they have. May be repeated. */
void cloud_stop(void);

/* Has the repository PATH, as it is now, on the git server; the first alone is. */
void cloud_publish(const char *path);
/* Its URL, which takes the token. */
const char *cloud_source(void);
/* What the environment's variable NAME would hold, of sbx_host.secret; NULL: it is not set. */
const char *cloud_secret(const char *name);

/* The sandboxes that there are, a line each. An engine of Dagger knows none: "". */
const char *cloud_living(void);
/* What was asked that no client should ask, a line each. */
const char *cloud_violations(void);
/* As if it had just been started. */
void cloud_clear(void);

#endif
