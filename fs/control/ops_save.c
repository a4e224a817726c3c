/*
 * Renaming a private buffer onto a control: the buffer's content is written to it, and the rename
 * is answered when that has been carried out.
 *
 * The kernel holds the directory's lock while a rename waits for its answer, and whoever looks up a
 * name in that directory that the kernel does not have would wait as well: no status, no kill, no
 * second request while the first runs. So a rename onto a control that may take its time is told
 * ESTALE first, which makes the kernel walk both paths again, asking for each name on them, before
 * it repeats the rename (since Linux 3.8, once). The next LOOKUP of that thread for the directory
 * itself is answered when the request has been carried out, because nothing is locked there; the
 * second RENAME gets the result. A client whose path has no name before the last (its current
 * directory is this one) makes no such LOOKUP, and its second RENAME waits with the lock.
 *
 * Nothing has been begun when ESTALE is told: where nobody repeats it, it is the truth, and must
 * stay so. System calls are always repeated; threads of the kernel (nfsd) pass ESTALE on, so they
 * are never told it. On its way a repeated walk looks up names and reads links and attributes: a
 * thread that asks for more has given up.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/nodes.h"
#include "fs/control/ops_save.h"
#include "fs/control/save_buffer.h"
#include "fs/util/holders.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define SECOND_NS    UINT64_C(1000000000)
#define ANNOUNCED_NS SECOND_NS /* a LOOKUP that comes later is not of the repeated walk */
#define ENDED_NS                                                                                   \
	(60 * SECOND_NS) /* a RENAME that comes later is another thread's of the same number */
#define VACANT_NS (10 * SECOND_NS)
#define SAVES_MAX 64
#define VACANCIES 32

enum state { ANNOUNCED, RUNNING, ENDED };

struct save {
	struct save *next;
	enum state state;
	uint64_t since_ns;
	pid_t pid; /* of the thread */
	struct sbx_buffer *buffer;
	fuse_ino_t dir;
	char *target; /* name in DIR */
	int errnum;   /* ENDED */
	/* While it runs: */
	struct sbx_controls *controls;
	struct sbx_pending pending;
	sbx_lookup_fn resume; /* of a LOOKUP that waits; NULL: a RENAME does */
	fuse_ino_t parent;
	char *name;
};

/* A control that one thread has removed, and may now make again. */
struct vacancy {
	pid_t pid; /* 0: none */
	uint64_t since_ns;
	uint64_t dir; /* sbx_control_ino */
	char name[32];
};

struct sbx_saves {
	pthread_mutex_t lock; /* all below; what runs is its own */
	struct save *list;    /* the latest first */
	unsigned n;
	atomic_uint announced;
	atomic_bool vacant; /* there may be a vacancy */
	struct vacancy vacancies[VACANCIES];
	unsigned next_vacancy;
};

int sbx_saves_create(struct sbx_saves **ret)
{
	struct sbx_saves *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	*ret = t;
	return 0;
}

static void save_free(struct save *s)
{
	sbx_buffer_unref(s->buffer);
	free(s->target);
	free(s->name);
	free(s);
}

void sbx_saves_destroy(struct sbx_saves *t)
{
	struct save *next;

	if (!t)
		return;
	for (struct save *s = t->list; s; s = next) {
		next = s->next;
		save_free(s);
	}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* The list; the lock is held */

static void set_state(struct sbx_saves *t, struct save *s, enum state state)
{
	atomic_fetch_add(&t->announced,
	                 (unsigned)(state == ANNOUNCED) - (unsigned)(s->state == ANNOUNCED));
	s->state = state;
	s->since_ns = sbx_now_ns();
}

static void take_out(struct sbx_saves *t, struct save *s)
{
	struct save **at = &t->list;

	assert(t->n > 0);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	t->n--;
	if (s->state == ANNOUNCED)
		atomic_fetch_sub(&t->announced, 1);
}

/* Of threads that ended between their two requests something stays: the oldest goes. */
static void bound(struct sbx_saves *t)
{
	struct save *oldest = NULL;

	for (struct save *s = t->list; s; s = s->next)
		if (s->state != RUNNING)
			oldest = s;
	if (t->n < SAVES_MAX || !oldest)
		return;
	take_out(t, oldest);
	save_free(oldest);
}

static void put_in(struct sbx_saves *t, struct save *s, enum state state)
{
	bound(t);
	s->state = RUNNING;
	set_state(t, s, state);
	s->next = t->list;
	t->list = s;
	t->n++;
}

static struct save *find(struct sbx_saves *t, const struct sbx_buffer *b, pid_t pid,
                         const char *target)
{
	struct save *s = t->list;

	while (s && !(s->buffer == b && s->pid == pid && strcmp(s->target, target) == 0))
		s = s->next;
	return s;
}

static bool running(const struct sbx_saves *t, const struct sbx_buffer *b)
{
	const struct save *s = t->list;

	while (s && !(s->buffer == b && s->state == RUNNING))
		s = s->next;
	return s;
}

/* Carrying out */

/* It is done; the record stays for the second RENAME, or this is it. */
static void done(struct sbx_pending *p, int errnum)
{
	struct save *s = sbx_container_of(p, struct save, pending);
	struct sbx_controls *c = s->controls;
	struct sbx_saves *t = c->saves;
	sbx_lookup_fn resume = s->resume;
	fuse_ino_t parent = s->parent;
	fuse_req_t req = s->pending.req;
	_cleanup_free_ char *name = s->name;

	sbx_deferred_remove(c->deferred, &s->pending);
	s->name = NULL;
	pthread_mutex_lock(&t->lock);
	assert(s->state == RUNNING);
	s->errnum = errnum;
	if (resume)
		set_state(t, s, ENDED);
	else
		take_out(t, s);
	pthread_mutex_unlock(&t->lock);
	if (resume) {
		resume(req, parent, name);
		return;
	}
	if (errnum == 0)
		sbx_buffers_remove(c->buffers, s->buffer);
	save_free(s);
	fuse_reply_err(req, errnum);
}

static const struct sbx_pending_impl done_impl = {.error = done};

/* REQ is answered when S, which is RUNNING, has been carried out. */
static void start(fuse_req_t req, struct save *s, const struct sbx_control_node *target)
{
	struct sbx_controls *c = controls_of(req);
	size_t len;
	char *data = sbx_buffer_content(s->buffer, &len);

	assert(s->state == RUNNING);
	s->controls = c;
	s->pending = (struct sbx_pending){.impl = &done_impl, .size = len};
	sbx_deferred_add(c->deferred, req, &s->pending);
	if (data)
		sbx_control_save(c->registry, target, data, len, &s->pending);
	else
		sbx_pending_error(&s->pending, ENOMEM);
}

bool sbx_save_announced(struct sbx_controls *c, pid_t pid)
{
	struct sbx_saves *t = c->saves;
	struct save *s;

	if (!atomic_load(&t->announced))
		return false;
	pthread_mutex_lock(&t->lock);
	for (s = t->list; s; s = s->next)
		if (s->state == ANNOUNCED && s->pid == pid)
			break;
	pthread_mutex_unlock(&t->lock);
	return s;
}

/* The lock is held. */
static void withdraw(struct sbx_saves *t, pid_t pid)
{
	for (struct save *s = t->list, *next; s; s = next) {
		next = s->next;
		if (s->state != ANNOUNCED || s->pid != pid)
			continue;
		take_out(t, s);
		save_free(s);
	}
}

void sbx_save_withdraw(fuse_req_t req)
{
	struct sbx_saves *t = controls_of(req)->saves;

	if (!atomic_load(&t->announced))
		return;
	pthread_mutex_lock(&t->lock);
	withdraw(t, fuse_req_ctx(req)->pid);
	pthread_mutex_unlock(&t->lock);
}

/* Whether DIR is where S is to be carried out. */
static bool is_dir_of(struct sbx_controls *c, const struct save *s,
                      const struct sbx_control_node *dir)
{
	struct sbx_control_node own;
	bool same;

	if (!sbx_controls_find(c, s->dir, &own))
		return false;
	same = sbx_control_node_same(&own, dir);
	sbx_control_node_release(&own);
	return same;
}

/* The record of the walk to DIR that the thread of REQ repeats, now RUNNING, or NULL. */
static struct save *repeated(fuse_req_t req, struct sbx_controls *c,
                             const struct sbx_control_node *dir)
{
	struct sbx_saves *t = c->saves;
	pid_t pid = fuse_req_ctx(req)->pid;
	struct save *s;

	pthread_mutex_lock(&t->lock);
	for (s = t->list; s; s = s->next)
		if (s->state == ANNOUNCED && s->pid == pid)
			break;
	if (s && (sbx_now_ns() - s->since_ns > ANNOUNCED_NS || running(t, s->buffer) ||
	          !is_dir_of(c, s, dir)))
		s = NULL;
	if (s)
		set_state(t, s, RUNNING);
	pthread_mutex_unlock(&t->lock);
	return s;
}

bool sbx_save_waits(fuse_req_t req, const struct sbx_control_node *dir, fuse_ino_t parent,
                    const char *name, sbx_lookup_fn resume)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_control_node target;
	_cleanup_free_ char *copy = strdup(name);
	struct save *s = copy ? repeated(req, c, dir) : NULL;

	if (!s)
		return false;
	if (sbx_control_lookup(c->registry, dir, s->target, &target) < 0) {
		pthread_mutex_lock(&c->saves->lock);
		set_state(c->saves, s, ANNOUNCED);
		pthread_mutex_unlock(&c->saves->lock);
		return false;
	}
	s->resume = resume;
	s->parent = parent;
	s->name = sbx_steal_ptr(&copy);
	start(req, s, &target);
	sbx_control_node_release(&target);
	return true;
}

static struct save *save_new(fuse_req_t req, fuse_ino_t dir, struct sbx_buffer *b,
                             const char *target)
{
	struct save *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->pid = fuse_req_ctx(req)->pid;
	s->buffer = sbx_buffer_ref(b);
	s->dir = dir;
	s->target = strdup(target);
	if (!s->target) {
		save_free(s);
		return NULL;
	}
	return s;
}

/* The next step of a RENAME: 1 to start *RET, 0 to answer *errnum. The lock is held. */
static int next_step(struct sbx_saves *t, struct save *fresh, bool waits, struct save **ret,
                     int *errnum)
{
	struct save *s = find(t, fresh->buffer, fresh->pid, fresh->target);

	*ret = s ? s : fresh;
	if (s && s->state == ENDED && sbx_now_ns() - s->since_ns <= ENDED_NS) {
		*errnum = s->errnum;
		take_out(t, s);
		return 0;
	}
	if (running(t, fresh->buffer)) {
		*errnum = EBUSY;
		return 0;
	}
	if (s && s->state == ANNOUNCED) {
		set_state(t, s, RUNNING);
		return 1;
	}
	if (s) {
		take_out(t, s);
		save_free(s);
		*ret = fresh;
	}
	withdraw(t, fresh->pid);
	put_in(t, fresh, waits ? ANNOUNCED : RUNNING);
	*errnum = ESTALE;
	return !waits;
}

void sbx_save_rename(fuse_req_t req, fuse_ino_t parent, struct sbx_buffer *b,
                     const struct sbx_control_node *target, const char *newname)
{
	struct sbx_controls *c = controls_of(req);
	struct save *fresh = save_new(req, parent, b, newname), *s = NULL;
	int errnum = 0, r;
	bool waits, over;

	if (!fresh) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	/* A thread that cannot be told from others cannot be waited for. */
	waits = sbx_control_waits(target) && fresh->pid && !sbx_holders_kernel(fresh->pid);
	pthread_mutex_lock(&c->saves->lock);
	r = next_step(c->saves, fresh, waits, &s, &errnum);
	over = r == 0 && s != fresh && errnum != EBUSY;
	pthread_mutex_unlock(&c->saves->lock);
	if (s != fresh || (r == 0 && errnum == EBUSY))
		save_free(fresh);
	if (r > 0) {
		s->resume = NULL;
		start(req, s, target);
		return;
	}
	if (over && errnum == 0)
		sbx_buffers_remove(c->buffers, b);
	if (over)
		save_free(s);
	fuse_reply_err(req, errnum);
}

/* Vacancies */

/* No other program needs it, and whoever removes a control for its own sake is to be told that it
 * stays. */
bool sbx_vacancy_needed(pid_t pid)
{
	static const char *const programs[] = {"mv",  "cp",       "install", "gmv",
	                                       "gcp", "ginstall", "busybox"};
	char name[32];

	if (!sbx_holders_name(pid, name, sizeof(name)))
		return false;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(programs); i++)
		if (strcmp(name, programs[i]) == 0)
			return true;
	return false;
}

void sbx_vacancy_add(struct sbx_controls *c, pid_t pid, const struct sbx_control_node *dir,
                     const char *name)
{
	struct sbx_saves *t = c->saves;
	struct vacancy *v;

	pthread_mutex_lock(&t->lock);
	v = &t->vacancies[t->next_vacancy++ % VACANCIES];
	*v = (struct vacancy){.pid = pid, .since_ns = sbx_now_ns(), .dir = sbx_control_ino(dir)};
	snprintf(v->name, sizeof(v->name), "%s", name);
	atomic_store(&t->vacant, true);
	pthread_mutex_unlock(&t->lock);
}

bool sbx_vacancy_find(struct sbx_controls *c, pid_t pid, const struct sbx_control_node *dir,
                      const char *name, bool take)
{
	struct sbx_saves *t = c->saves;
	uint64_t now = sbx_now_ns(), ino;
	bool found = false, left = false;

	if (!atomic_load(&t->vacant))
		return false;
	ino = sbx_control_ino(dir);
	pthread_mutex_lock(&t->lock);
	for (struct vacancy *v = t->vacancies; v < t->vacancies + VACANCIES; v++) {
		if (v->pid && now - v->since_ns > VACANT_NS)
			v->pid = 0;
		if (v->pid && v->pid == pid && v->dir == ino && strcmp(v->name, name) == 0) {
			found = true;
			if (take)
				v->pid = 0;
		}
		left |= v->pid != 0;
	}
	atomic_store(&t->vacant, left);
	pthread_mutex_unlock(&t->lock);
	return found;
}
