#include "tests/lib/away.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"
#include "sandboxfs/pool.h"

#define LOOK_MS   5
#define DOZE_MS   100 /* longer than a case takes to change a file there again */
#define THREADS   256
#define CHUNK_MAX 64

int __real_sbx_memory_open(const struct sbx_host *host, struct sbx_backend **ret,
                           struct sbx_error *err);
int __wrap_sbx_memory_open(const struct sbx_host *host, struct sbx_backend **ret,
                           struct sbx_error *err);

struct away {
	struct sbx_backend base;
	struct sbx_backend_impl impl;
	struct sbx_backend *inner;
	const struct sbx_host *host;
	struct sbx_pool *pool;
	int dir; /* SBX_AWAY */
};

/* Something that is wanted, until it has been told. */
struct job {
	struct away_sandbox *s;
	struct sbx_want *w;
	atomic_bool unwanted;
	struct away_change *changes; /* of a flush */
	size_t n;
	int code;
	struct sbx_error err;
};

static struct away_sandbox *downcast(struct sbx_sandbox *sb)
{
	return (struct away_sandbox *)sb;
}

static struct sbx_sandbox *inner_of(struct sbx_sandbox *sb)
{
	return downcast(sb)->inner;
}

/* --- the play ----------------------------------------------------------------------------------
 */

static void say(struct away_sandbox *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct away_sandbox *s, const char *fmt, ...)
{
	_cleanup_fd_ int fd =
	        openat(s->play, "log", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	va_list ap;

	va_start(ap, fmt);
	if (fd < 0 || vdprintf(fd, fmt, ap) < 0)
		abort();
	va_end(ap);
}

static bool stands(struct away_sandbox *s, const char *name)
{
	return faccessat(s->play, name, F_OK, 0) == 0;
}

/* What the file NAME says, without its last newline; NULL: there is none. */
static char *word_of(struct away_sandbox *s, const char *name)
{
	char *text = NULL;

	if (sbx_file_read(s->play, name, PATH_MAX, &text) < 0)
		return NULL;
	text[strcspn(text, "\n")] = '\0';
	return text;
}

static void doze(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static bool waits(const struct job *j)
{
	struct away_sandbox *s = j->s;

	if (atomic_load(&j->unwanted))
		return false;
	return stands(s, "down") || (j->w->need != SBX_NEED_UP && stands(s, "hold"));
}

/* 0, or the errno that is played. */
static int failure(const struct job *j)
{
	_cleanup_free_ char *word = word_of(j->s, "fail");
	const char *path = word ? strchr(word, ' ') : NULL;

	if (!path || (strcmp(path + 1, "*") != 0 && (!j->w->path || strcmp(path + 1, j->w->path))))
		return 0;
	return atoi(word);
}

static void linger(const struct job *j)
{
	_cleanup_free_ char *word = word_of(j->s, "delay");

	for (int ms = word ? atoi(word) : 0; ms > 0 && !atomic_load(&j->unwanted); ms -= LOOK_MS)
		doze(LOOK_MS);
	while (waits(j))
		doze(LOOK_MS);
}

/* --- wants -------------------------------------------------------------------------------------
 */

/* [loop] */
static void job_done(void *data)
{
	struct job *j = data;
	struct sbx_want *w = j->w;

	w->part = NULL;
	w->done(w, j->code, &j->err);
	away_changes_free(j->changes, j->n);
	free(j);
}

static int fetch(struct job *j)
{
	struct away_sandbox *s = j->s;

	switch (j->w->need) {
	case SBX_NEED_NAMES:
		return away_fetch_names(s, j->w->path);
	case SBX_NEED_DATA:
		return away_fetch_data(s, j->w->path, j->w->off, j->w->len);
	case SBX_NEED_ATTR:
		pthread_mutex_lock(&s->lock);
		s->looked = true;
		pthread_mutex_unlock(&s->lock);
		return 0;
	case SBX_NEED_SENT:
		return away_send(s, j->changes, j->n);
	case SBX_NEED_UP:
		break;
	}
	return 0;
}

static void job_run(void *data)
{
	struct job *j = data;
	int r;

	linger(j);
	j->code = atomic_load(&j->unwanted) ? EINTR : failure(j);
	if (!j->code) {
		r = fetch(j);
		j->code = -r;
	}
	if (j->code)
		sbx_fail(&j->err, j->code, "the played machine says: %s", strerror(j->code));
	sbx_loop_post(j->s->backend->host->loop, job_done, j);
}

static struct job *job_begin(struct away_sandbox *s, struct sbx_want *w)
{
	struct job *j = calloc(1, sizeof(*j));

	assert(j);
	j->s = s;
	j->w = w;
	w->part = j;
	return j;
}

static void away_want(struct sbx_sandbox *sb, struct sbx_want *w)
{
	static const char *const needs[] = {"up", "names", "attr", "data", "sent"};
	struct away_sandbox *s = downcast(sb);

	if (w->need == SBX_NEED_DATA)
		say(s, "want data %s %llu+%llu\n", w->path, (unsigned long long)w->off,
		    (unsigned long long)w->len);
	else
		say(s, "want %s%s%s\n", needs[w->need], w->path && *w->path ? " " : "",
		    w->path ? w->path : "");
	sbx_pool_submit(s->backend->pool, job_run, job_begin(s, w));
}

static void away_unwant(struct sbx_sandbox *sb, struct sbx_want *w)
{
	struct job *j = w->part;

	say(downcast(sb), "unwant\n");
	if (j)
		atomic_store(&j->unwanted, true);
}

static void away_flush(struct sbx_sandbox *sb, struct sbx_want *w)
{
	struct away_sandbox *s = downcast(sb);
	struct job *j = job_begin(s, w);

	say(s, "flush\n");
	assert(w->need == SBX_NEED_SENT);
	pthread_mutex_lock(&s->lock);
	j->changes = s->changes;
	j->n = s->nchanges;
	s->changes = NULL;
	s->nchanges = s->cap = 0;
	pthread_mutex_unlock(&s->lock);
	sbx_pool_submit(s->backend->pool, job_run, j);
}

/* --- what is known -----------------------------------------------------------------------------
 */

struct away_file *away_file_of(struct away_sandbox *s, ino_t ino)
{
	struct away_file **at = &s->files[ino % AWAY_BUCKETS];

	while (*at && (*at)->ino != ino)
		at = &(*at)->next;
	if (!*at) {
		*at = calloc(1, sizeof(**at));
		assert(*at);
		(*at)->ino = ino;
	}
	return *at;
}

static bool has_data(const struct away_file *f, uint64_t off, uint64_t len)
{
	uint64_t from = off / AWAY_CHUNK, to = len ? away_chunks(off + len) : f->chunks;

	for (uint64_t c = from; c < to && c < f->chunks; c++)
		if (!(f->have & UINT64_C(1) << c))
			return false;
	return true;
}

static bool away_here(struct sbx_sandbox *sb, uint64_t ino, enum sbx_need need, uint64_t off,
                      uint64_t len)
{
	struct away_sandbox *s = downcast(sb);
	struct away_file *f;
	bool here = true;

	pthread_mutex_lock(&s->lock);
	f = away_file_of(s, ino);
	if (need == SBX_NEED_NAMES)
		here = f->names;
	else if (need == SBX_NEED_ATTR)
		here = s->looked || !stands(s, "old");
	else if (need == SBX_NEED_DATA)
		here = has_data(f, off, len);
	pthread_mutex_unlock(&s->lock);
	if (need == SBX_NEED_DATA && stands(s, "doze"))
		doze(DOZE_MS);
	return here;
}

/* --- changes -----------------------------------------------------------------------------------
 */

static int away_admit(struct sbx_sandbox *sb, const struct sbx_change *meant, struct sbx_error *err)
{
	struct away_sandbox *s = downcast(sb);

	(void)meant;
	if (stands(s, "full"))
		return sbx_fail(err, ENOSPC, "there is no room to note it");
	atomic_fetch_add(&s->admitted, 1);
	return 0;
}

static void say_change(struct away_sandbox *s, const struct sbx_change *c)
{
	static const char *const kinds[] = {"data",  "emptied", "made",   "gone",
	                                    "moved", "swapped", "linked", "status"};
	const char type = S_ISDIR(c->mode)    ? 'd'
	                  : S_ISLNK(c->mode)  ? 'l'
	                  : S_ISFIFO(c->mode) ? 'p'
	                  : S_ISSOCK(c->mode) ? 's'
	                                      : '-';

	say(s, "%s %s%s%s %c%03o%s%s\n", kinds[c->kind], c->path, c->to ? " " : "",
	    c->to ? c->to : "", type, c->mode & 07777u, c->target ? " " : "",
	    c->target ? c->target : "");
}

/* A write to the same file again and again is one. */
static bool is_known(struct away_sandbox *s, const struct sbx_change *c)
{
	const struct away_change *last = s->nchanges ? &s->changes[s->nchanges - 1] : NULL;

	return last && c->kind == SBX_CHANGE_DATA && last->kind == c->kind && last->ino == c->ino;
}

static void note(struct away_sandbox *s, const struct sbx_change *c)
{
	struct away_file *f = away_file_of(s, c->ino);

	if (c->kind == SBX_CHANGE_MADE)
		f->names = true;
	if (c->kind == SBX_CHANGE_MADE || c->kind == SBX_CHANGE_EMPTIED)
		f->chunks = 0;
	say_change(s, c);
	if (is_known(s, c))
		return;
	if (SBX_GROW(s->changes, s->nchanges, s->cap, 64))
		abort();
	s->changes[s->nchanges++] =
	        (struct away_change){.kind = c->kind,
	                             .path = strdup(c->path),
	                             .to = c->to ? strdup(c->to) : NULL,
	                             .target = c->target ? strdup(c->target) : NULL,
	                             .ino = c->ino,
	                             .mode = c->mode};
}

static void away_changed(struct sbx_sandbox *sb, const struct sbx_change *c)
{
	struct away_sandbox *s = downcast(sb);

	if (atomic_fetch_sub(&s->admitted, 1) <= 0)
		abort();
	pthread_mutex_lock(&s->lock);
	note(s, c);
	pthread_mutex_unlock(&s->lock);
}

static void away_dropped(struct sbx_sandbox *sb, const struct sbx_change *meant)
{
	(void)meant;
	if (atomic_fetch_sub(&downcast(sb)->admitted, 1) <= 0)
		abort();
}

/* Nothing goes on by itself. */
static void away_begin(struct sbx_sandbox *sb)
{
	(void)sb;
}

static void away_rest(struct sbx_sandbox *sb, unsigned ms)
{
	(void)sb;
	(void)ms;
}

static void away_leave(struct sbx_sandbox *sb)
{
	(void)sb;
}

static const struct sbx_away_impl away_impl = {
        .begin = away_begin,
        .rest = away_rest,
        .leave = away_leave,
        .here = away_here,
        .want = away_want,
        .unwant = away_unwant,
        .admit = away_admit,
        .changed = away_changed,
        .dropped = away_dropped,
        .flush = away_flush,
};

/* --- what becomes different there --------------------------------------------------------------
 */

/* [loop] */
static void refreshed(void *data)
{
	struct away_sandbox *s = data;

	s->refreshing = false;
	unlinkat(s->play, "refresh", 0);
}

static void refresh(void *data)
{
	struct away_sandbox *s = data;
	_cleanup_free_ char *path = word_of(s, "refresh");

	if (path && away_take_over(s, path) < 0)
		say(s, "refresh failed\n");
	sbx_loop_post(s->backend->host->loop, refreshed, s);
}

static void look(struct sbx_timer *t)
{
	struct away_sandbox *s = t->data;

	sbx_loop_timer_set(s->backend->host->loop, t, LOOK_MS);
	if (s->refreshing || !stands(s, "refresh"))
		return;
	s->refreshing = true;
	sbx_pool_submit(s->backend->pool, refresh, s);
}

/* [loop] */
static void look_first(void *data)
{
	struct away_sandbox *s = data;

	s->timer.fn = look;
	s->timer.data = s;
	look(&s->timer);
}

/* --- the sandbox -------------------------------------------------------------------------------
 */

static int do_root(struct sbx_sandbox *sb)
{
	return sbx_sandbox_root(inner_of(sb));
}

static void do_info(struct sbx_sandbox *sb, struct json_object *obj)
{
	struct away_sandbox *s = downcast(sb);
	const char *state = stands(s, "down") ? "creating" : stands(s, "fail") ? "failed" : "ready";

	sbx_sandbox_info(inner_of(sb), obj);
	json_object_object_add(obj, "state", json_object_new_string(state));
}

static void do_policy(struct sbx_sandbox *sb, struct json_object *obj)
{
	sbx_sandbox_policy(inner_of(sb), obj);
}

static int do_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	int r = sbx_sandbox_rename(inner_of(sb), name, err);

	sb->name = inner_of(sb)->name;
	return r;
}

static int do_retire(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sbx_sandbox_retire(inner_of(sb), err);
}

static int do_remove(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sbx_sandbox_remove(inner_of(sb), err);
}

static void do_close(struct sbx_sandbox *sb)
{
	struct away_sandbox *s = downcast(sb);

	if (atomic_load(&s->admitted))
		abort();
	sbx_loop_timer_cancel(s->backend->host->loop, &s->timer);
	sbx_sandbox_close(s->inner);
	away_changes_free(s->changes, s->nchanges);
	for (size_t i = 0; i < AWAY_BUCKETS; i++)
		for (struct away_file *f = s->files[i], *next; f; f = next) {
			next = f->next;
			free(f);
		}
	close(s->play);
	close(s->far);
	close(s->nested);
	close(s->temp);
	pthread_rwlock_destroy(&s->turn);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static int do_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec, struct sbx_job *job,
                   struct sbx_error *err)
{
	say(downcast(sb), "exec %s in \"%s\" timeout %llu stdin %s\n", spec->argv[0], spec->cwd,
	    (unsigned long long)spec->timeout_ms, spec->stdin_fd < 0 ? "none" : "kept");
	for (size_t i = 0; spec->env[i]; i++)
		say(downcast(sb), "env %s\n", spec->env[i]);
	return inner_of(sb)->impl->commands->exec(inner_of(sb), spec, job, err);
}

static void do_signal(struct sbx_job *job, int sig)
{
	inner_of(job->sandbox)->impl->commands->signal(job, sig);
}

/* As at an engine that runs a command in one request. */
static bool do_takes(struct sbx_sandbox *sb, int sig)
{
	(void)sb;
	return sig != SIGSTOP && sig != SIGCONT;
}

static const char *do_gitfile(struct sbx_sandbox *sb)
{
	(void)sb;
	return NULL;
}

static int do_guard(struct sbx_sandbox *sb, struct sbx_error *err)
{
	(void)sb;
	(void)err;
	return 0;
}

static int do_nested(struct sbx_sandbox *sb, bool make)
{
	int fd = fcntl(downcast(sb)->nested, F_DUPFD_CLOEXEC, 3);

	(void)make;
	return fd < 0 ? -errno : fd;
}

static const struct sbx_command_impl commands_impl = {
        .exec = do_exec, .signal = do_signal, .takes = do_takes};
static const struct sbx_git_impl git_impl = {do_gitfile, do_guard, do_nested};

static const struct sbx_sandbox_impl sandbox_impl = {
        .root = do_root,
        .info = do_info,
        .policy = do_policy,
        .rename = do_rename,
        .retire = do_retire,
        .remove = do_remove,
        .close = do_close,
        .commands = &commands_impl,
        .git = &git_impl,
        .away = &away_impl,
};

static void open_places(struct away_sandbox *s)
{
	_cleanup_free_ char *dir = strdup(s->inner->workdir);
	struct stat st;
	int beside;

	assert(dir);
	*strrchr(dir, '/') = '\0';
	beside = sbx_dir_open(AT_FDCWD, dir);
	s->nested = sbx_dir_make(beside, "nested", 0700);
	s->temp = sbx_dir_make(beside, "temp", 0700);
	s->play = sbx_dir_make(s->backend->dir, s->inner->name, 0755);
	s->far = sbx_dir_make(s->play, "far", 0755);
	assert(beside >= 0 && s->nested >= 0 && s->temp >= 0 && s->play >= 0 && s->far >= 0);
	close(beside);
	if (fstat(s->far, &st) == 0)
		utimensat(AT_FDCWD, s->inner->workdir, (struct timespec[]){st.st_atim, st.st_mtim},
		          AT_SYMLINK_NOFOLLOW);
}

static int do_create(struct sbx_backend *base, const struct sbx_create *req,
                     struct sbx_sandbox **ret, struct sbx_error *err)
{
	struct away *b = sbx_container_of(base, struct away, base);
	struct away_sandbox *s;
	int r = sbx_backend_create(b->inner, req, ret, err);

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	assert(s);
	s->base = **ret;
	s->impl = sandbox_impl;
	s->base.impl = &s->impl;
	s->inner = *ret;
	s->backend = b;
	s->base.turn = &s->turn;
	pthread_rwlock_init(&s->turn, NULL);
	pthread_mutex_init(&s->lock, NULL);
	open_places(s);
	sbx_loop_post(b->host->loop, look_first, s);
	*ret = &s->base;
	return 0;
}

static int do_recover(struct sbx_backend *base, const struct sbx_recover *r, struct sbx_error *err)
{
	return sbx_backend_recover(sbx_container_of(base, struct away, base)->inner, r, err);
}

static void do_destroy(struct sbx_backend *base)
{
	struct away *b = sbx_container_of(base, struct away, base);

	sbx_pool_destroy(b->pool);
	sbx_backend_destroy(b->inner);
	close(b->dir);
	free(b);
}

static const struct sbx_backend_impl impl = {
        .name = "memory",
        .away = true,
        .recover = do_recover,
        .create = do_create,
        .destroy = do_destroy,
};

int __wrap_sbx_memory_open(const struct sbx_host *host, struct sbx_backend **ret,
                           struct sbx_error *err)
{
	const char *dir = getenv("SBX_AWAY");
	struct away *b = calloc(1, sizeof(*b));
	int r = __real_sbx_memory_open(host, ret, err);

	if (r < 0)
		return r;
	assert(b && dir);
	b->base.impl = &impl;
	b->inner = *ret;
	b->host = host;
	b->dir = sbx_dir_make(AT_FDCWD, dir, 0755);
	r = sbx_pool_create_wide(THREADS, false, &b->pool);
	assert(r == 0 && b->dir >= 0);
	*ret = &b->base;
	return 0;
}
