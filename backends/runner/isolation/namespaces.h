/*
 * The namespaces (mount, ipc, uts, net, user) and the Landlock ruleset of a sandbox, which decide
 * what its commands see and may do. They are made once and kept by descriptor. Used by the
 * spawner process, which has a single thread.
 */
#ifndef SANDBOXFS_RUNNER_ISOLATION_NAMESPACES_H
#define SANDBOXFS_RUNNER_ISOLATION_NAMESPACES_H

#include "backends/runner/isolation/request.h"
#include "backends/runner/isolation/settings.h"

/* In the order in which they are joined: after the last, /proc of the host is out of sight. */
enum { VIEW_IPC, VIEW_UTS, VIEW_NET, VIEW_MNT, VIEW_NAMESPACES };

struct view {
	int fds[VIEW_NAMESPACES]; /* -1: the host's */
	int user;                 /* the user namespace of commands alone, or -1 */
	int landlock;             /* the ruleset, or -1 */
	int listener;             /* of net=allow, until it is taken; or -1 */
	uint64_t serial;          /* never another's */
	uint64_t sockets;         /* the mark of those that are covered in it */
	uint64_t used;            /* for the LRU; 0: this place of the cache is free */
	char *key;                /* what it was made for: id first */
	size_t key_len;
};

struct views;

/*
 * Puts the calling process into a user namespace where that is needed to make others, and finds
 * out by trying what can be made; ret->who is given. Nothing is left behind but the user namespace.
 * ret->reason is empty when everything that SETTINGS asks for can be had.
 */
void views_probe(const struct isolation_settings *settings, struct spawn_features *ret);

/* SETTINGS and FEATURES must live as long. Returns 0 or -ENOMEM. */
int views_create(const struct isolation_settings *settings, const struct spawn_features *features,
                 struct views **ret);
/* Layered trees are taken from the mount namespace ROOM, which is taken over. */
void views_use_mounter(struct views *views, int mounter);
/*
 * The namespaces of the sandbox REQ names, made now if they are not kept or were made for another
 * place. The view belongs to the cache and is valid until the next call. Returns 0 or
 * a negative errno.
 */
int views_get(struct views *views, const struct spawn_request *req, const struct view **ret);
/* The listener of a view that views_get gave, the caller's from now on; -1: there is none, or no
 * more. */
int views_take_listener(struct views *views, const struct view *view);
/* The view of that serial number while it is kept; else NULL. */
const struct view *views_find(const struct views *views, uint64_t serial);
/* When it was used last, by a clock that counts uses; 0: it is not kept. */
uint64_t views_last_use(const struct views *views, uint64_t serial);
/* Drops what is kept for ID. */
void views_forget(struct views *views, const char *id);

/* Whether the view has mounts of its own; else commands see the host, and Landlock is the wall. */
static inline bool view_is_own(const struct view *view)
{
	return view && view->fds[VIEW_MNT] >= 0;
}

/*
 * Moves the calling process (single-threaded, pid 1 of its own pid namespace) into the namespaces
 * but the user's, with a mount namespace and a /proc of its own. Returns 0 or a negative errno.
 */
int view_enter(const struct view *view);

#endif
