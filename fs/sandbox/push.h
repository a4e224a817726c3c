/*
 * Pushes of sandboxes' branches, and the pull requests that follow. They wait for servers, so they
 * have threads of their own, and nothing else waits for them: of one sandbox one goes on at a time,
 * others follow; the end of the sandbox or of the mount gives them up.
 *
 * The outcome is data and no error of the caller's, but its sentence stands in ctl/error too: a
 * PushResult, one JSON object
 *   {"pushed":BOOL,"prUrl":"https://...","error":"..."}
 * in one of four forms; a member that does not apply is absent.
 *   {"pushed":false,"error":"GITHUB_TOKEN required for push"}       for HTTP(S), and for every pull
 * request
 *   {"pushed":false,"error":"git push failed: REASON"}
 *   {"pushed":true,"error":"PR creation failed: REASON"}
 *   {"pushed":true,"prUrl":"https://..."}                           without "prUrl" when none was
 * asked for
 */
#ifndef SANDBOXFS_FS_SANDBOX_PUSH_H
#define SANDBOXFS_FS_SANDBOX_PUSH_H

#include "fs/sandbox/registry.h"

struct sbx_push;
struct sbx_pusher;

/* HTTP is borrowed. TOKEN (borrowed; NULL: there is none) and API are GITHUB_TOKEN and
 * GITHUB_API_URL. Starts no thread. 0 or -ENOMEM. */
int sbx_pusher_create(struct sbx_http *http, const struct sbx_secret *token, const char *api,
                      struct sbx_pusher **ret);
/* Nothing is being pushed. Waits for the threads; accepts NULL. */
void sbx_pusher_destroy(struct sbx_pusher *pusher);

/* Whether the sandbox can be pushed at all; else -EOPNOTSUPP with a sentence. Any thread. */
int sbx_push_check(struct sbx_box *box, struct sbx_error *err);

/*
 * [loop] code 0: RESULT, a line of JSON, is there, and is what sbx_push_last gives from now on.
 * -ESTALE the sandbox or the mount was taken down meanwhile.
 */
typedef void (*sbx_push_done)(int code, const char *result, const struct sbx_error *err,
                              void *data);
/*
 * Queues a push, taking REQ over. *ret stays valid until done is called, on the loop thread.
 * -ESTALE the sandbox is gone, -EBUSY it or the mount is being taken down, -ENOMEM. Any thread.
 */
int sbx_push_begin(struct sbx_box *box, struct sbx_push_request *req, sbx_push_done done,
                   void *data, struct sbx_push **ret, struct sbx_error *err);
/* [loop] Nobody waits for it any more: done is not called, and it is given up. */
void sbx_push_abandon(struct sbx_push *push);
/* A request that was not understood, or not begun, is the last PushResult: ERR is why. Any thread.
 */
void sbx_push_refused(struct sbx_box *box, const struct sbx_error *err);
/* The last PushResult, malloc'd; "" when nothing was pushed yet; NULL: no memory. Any thread. */
char *sbx_push_last(struct sbx_box *box);

#endif
