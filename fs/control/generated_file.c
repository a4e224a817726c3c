/*
 * Files that are long to make and may be large: content of snapshots, diffs. The first read has
 * them made in the pool, into a file without a name; readers wait for the end and are served from
 * it by offset. Each open file has its own. What is being made is shared by the open file and the
 * pool, either of which may be done with it first.
 */
#include "fs/control/generated_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/sandbox/backend_work.h"
#include "sandboxfs/cleanup.h"

#define PART_MAX   (1024 * 1024) /* of one read */
#define MEMORY_MAX (1024 * 1024) /* of what is made, to be kept in memory */

struct reader {
	struct reader *next;
	struct made *made;
	struct sbx_pending *p;
	uint64_t off;
};

struct made {
	struct sbx_work work;
	atomic_uint refs;
	generate_fn make;
	struct sbx_control_node node;
	int making;           /* what is being written; of the pool, then of the loop thread */
	pthread_mutex_t lock; /* all below */
	bool begun, ready;
	int fd, code; /* when ready: -1 and why it could not be made, or the file */
	struct reader *readers;
};

int sbx_nameless_file(struct sbx_registry *reg, uint64_t len)
{
	const char *dir = sbx_registry_settings(reg)->state_dir;
	int fd = -1;

	if (dir && (!len || len > MEMORY_MAX))
		fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	/* Not every file system has such files. */
	if (fd < 0)
		fd = memfd_create("sandboxfs", MFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void made_unref(struct made *m)
{
	assert(atomic_load(&m->refs) > 0);
	if (atomic_fetch_sub(&m->refs, 1) != 1)
		return;
	assert(!m->readers);
	if (m->fd >= 0)
		close(m->fd);
	sbx_control_node_release(&m->node);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

/* Making */

/* [pool] */
static int run(struct sbx_work *w, struct sbx_error *err)
{
	struct made *m = sbx_container_of(w, struct made, work);
	int r;

	assert(m->making < 0);
	m->making =
	        sbx_nameless_file(w->box->registry, m->node.item ? m->node.item->object.size : 0);
	if (m->making < 0)
		return sbx_fail(err, -m->making, "there is no room for what is to be read: %s",
		                strerror(-m->making));
	r = m->make(&m->node, &w->cancelled, m->making, err);
	if (r < 0) {
		close(m->making);
		m->making = -1;
	}
	return r;
}

static void answer(struct sbx_pending *p, int fd, uint64_t off)
{
	size_t size = p->size < PART_MAX ? p->size : PART_MAX;
	_cleanup_free_ char *buf = malloc(size + 1);
	ssize_t n = buf ? pread(fd, buf, size, (off_t)off) : -1;

	if (!buf)
		sbx_pending_error(p, ENOMEM);
	else if (n < 0)
		sbx_pending_error(p, errno);
	else
		sbx_pending_data(p, buf, (size_t)n);
}

/* [loop] */
static void done(struct sbx_work *w)
{
	struct made *m = sbx_container_of(w, struct made, work);
	struct reader *r, *next;

	if (w->code < 0)
		sbx_error_store(w->box->registry, w->box, &w->err);
	pthread_mutex_lock(&m->lock);
	assert(!m->ready);
	m->fd = m->making;
	m->code = w->code;
	m->ready = true;
	r = m->readers;
	m->readers = NULL;
	pthread_mutex_unlock(&m->lock);
	for (; r; r = next) {
		next = r->next;
		if (m->code < 0)
			sbx_pending_error(r->p, -m->code);
		else
			answer(r->p, m->fd, r->off);
		free(r);
	}
	made_unref(m);
}

/* The lock is held. */
static void begin(struct made *m)
{
	if (m->begun)
		return;
	m->begun = true;
	atomic_fetch_add(&m->refs, 1);
	sbx_box_work(m->node.box, &m->work);
}

/* Reading */

/*
 * Of a client that goes on: nobody expects EINTR of a file, and who has it mapped would get SIGBUS.
 * Nobody can be told twice: a reader is in the list or is being answered on this thread. The making
 * goes on: the file may be open elsewhere too, and if it is not, its release ends that.
 */
static void cancel(struct sbx_pending *p, bool fatal)
{
	struct reader *r = p->owner, **at;
	struct made *m = r->made;

	if (!fatal)
		return;
	pthread_mutex_lock(&m->lock);
	for (at = &m->readers; *at != r; at = &(*at)->next)
		;
	*at = r->next;
	pthread_mutex_unlock(&m->lock);
	free(r);
	sbx_pending_error(p, EINTR);
}

/* The lock is held. */
static int wait_for(struct made *m, struct sbx_pending *p, uint64_t off)
{
	struct reader *r = malloc(sizeof(*r));

	if (!r)
		return -ENOMEM;
	*r = (struct reader){.next = m->readers, .made = m, .p = p, .off = off};
	m->readers = r;
	sbx_pending_defer(p, cancel, r);
	begin(m);
	return 0;
}

void sbx_generated_read(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	struct made *m = h->state;
	bool ready;
	int r;

	pthread_mutex_lock(&m->lock);
	ready = m->ready;
	r = ready ? m->code : wait_for(m, p, off);
	pthread_mutex_unlock(&m->lock);
	if (r < 0)
		sbx_pending_error(p, -r);
	else if (ready)
		answer(p, m->fd, off);
}

void sbx_generated_release(struct sbx_control_handle *h)
{
	struct made *m = h->state;

	sbx_work_cancel(&m->work);
	made_unref(m);
}

int sbx_generated_open(struct sbx_control_handle *h, generate_fn fn, struct sbx_error *err)
{
	struct made *m = calloc(1, sizeof(*m));

	if (!m)
		return sbx_no_memory(err);
	atomic_init(&m->refs, 1);
	pthread_mutex_init(&m->lock, NULL);
	m->make = fn;
	m->fd = m->making = -1;
	m->work.run = run;
	m->work.done = done;
	sbx_control_node_copy(&h->node, &m->node);
	h->state = m;
	return 0;
}
