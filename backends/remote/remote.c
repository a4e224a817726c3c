/*
 * The backend of a provider: the state directory, and the sandboxes in it.
 *
 *   STATE/remote/ID/   the record (record.h), tree/ and temp/ (tree.h), journal.N (journal.h)
 *   STATE/nested/ID/   what the host made as .git
 *   STATE/late/NAME    a machine that may come late (late.h)
 *   STATE/label        what tells its machines from others' (label.h)
 *
 * mkdir does not wait for a network: a create writes the record and returns, and the machine is
 * made behind it (life.c). Nor does the mount: what an earlier daemon had is taken up from the
 * records, and looked for afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "backends/git/repository.h"
#include "backends/remote/ask.h"
#include "backends/remote/label.h"
#include "backends/remote/remote_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/pool.h"
#include "sandboxfs/tree.h"

#define WORKERS_MOST 64
#define WAITERS_MOST 64

/* --- create -----------------------------------------------------------------------------------
 */

/* PATTERN with every "{name}" replaced. The caller's; NULL without memory. */
static char *expand(const char *pattern, const char *name)
{
	struct remote_text text = {0};

	for (const char *at = pattern; at;) {
		const char *mark = strstr(at, "{name}");

		remote_text_add_n(&text, at, mark ? (size_t)(mark - at) : strlen(at));
		if (mark)
			remote_text_add(&text, name);
		at = mark ? mark + strlen("{name}") : NULL;
	}
	if (!text.failed)
		return text.at;
	remote_text_release(&text);
	return NULL;
}

static char *branch_for(const struct remote *b, const char *name)
{
	const char *pattern = b->host->settings->branch;

	return expand(pattern ? pattern : "sandbox/{name}", name);
}

/* What a provider takes as a name: ours, in small letters, and something that is unique for ever.
 */
char *remote_machine_name(const char *id)
{
	char *name = sbx_format("sbx-%s", id);

	for (char *c = name; c && *c; c++) {
		if (*c >= 'A' && *c <= 'Z')
			*c = (char)(*c - 'A' + 'a');
		else if (!(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9'))
			*c = '-';
	}
	return name;
}

static struct remote_box *box_of(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb, struct remote_box, base);
}

static int copy(const char *from, char **ret)
{
	if (!from)
		return 0;
	*ret = strdup(from);
	return *ret ? 0 : -ENOMEM;
}

/*
 * A provider clones behind the create, so that nobody has looked which branches there are when the
 * sandbox gets its name. "new" is what a mount has that says nothing.
 */
static int check_branch_exists(const struct sbx_provider_impl *p, const char *word,
                               struct sbx_error *err)
{
	if (strcmp(word, "continue") == 0 && p->can & SBX_PROVIDER_CONTINUES)
		return 0;
	return sbx_fail(err, EOPNOTSUPP, "branch_exists=%s is not for the %s backend: %s", word,
	                p->name,
	                strcmp(word, "continue") == 0
	                        ? "a sandbox begins a branch of its own there"
	                        : "it is not looked whether the source has the branch");
}

static int is_snapshot(const struct sbx_snapshot *s, void *data)
{
	return strncmp(s->id, data, strlen(data)) == 0;
}

static int check_rev(struct sbx_sandbox *of, const char *rev, struct sbx_error *err)
{
	int r = sbx_rev_check(rev, err);

	if (r < 0)
		return r;
	if (strcmp(rev, "base") == 0 || strncmp(rev, "mark:", 5) == 0)
		return box_of(of)->rec.source
		               ? 0
		               : sbx_fail(err, EOPNOTSUPP,
		                          "%s has no repository, which would know what it was",
		                          of->name);
	r = sbx_history_list(of, is_snapshot, (void *)(uintptr_t)rev, err);
	return r == 0  ? sbx_fail(err, ENOENT, "%s has no snapshot %s", of->name, rev)
	       : r > 0 ? 0
	               : r;
}

static int check_origin(const struct remote *b, const struct sbx_origin *origin,
                        struct sbx_error *err)
{
	const struct sbx_provider_impl *p = b->provider->impl;

	if (origin->kind == SBX_ORIGIN_SOURCE)
		return 0;
	if (!p->copy)
		return sbx_fail(err, EOPNOTSUPP,
		                "a sandbox of the %s backend starts as the source, not as another",
		                p->name);
	if (origin->kind == SBX_ORIGIN_TRASH)
		return sbx_fail(err, EOPNOTSUPP,
		                "the %s backend keeps nothing of a sandbox that was removed",
		                p->name);
	return origin->rev ? check_rev(origin->sandbox, origin->rev, err) : 0;
}

static int check_request(const struct remote *b, const struct sbx_create *req,
                         struct sbx_error *err)
{
	const struct sbx_settings *s = b->host->settings;
	int r = sbx_name_check(req->name, err);

	if (r < 0)
		return r;
	r = check_origin(b, &req->origin, err);
	if (r < 0)
		return r;
	if (!(req->origin.sandbox ? box_of(req->origin.sandbox)->rec.source : s->source) &&
	    (req->origin.base || req->branch || req->branch_exists))
		return sbx_fail(err, EINVAL, "sandboxes without a source have no base or branch");
	if (req->branch_exists) {
		r = check_branch_exists(b->provider->impl, req->branch_exists, err);
		if (r < 0)
			return r;
	}
	if (req->cancelled && atomic_load(req->cancelled))
		return sbx_fail(err, EINTR, "creating %s was given up", req->name);
	return 0;
}

/* What a fork of OF has from it. */
static int copy_origin(struct remote_box *of, const char *rev, struct remote_record *rec)
{
	int r = copy(rev ? rev : "", &rec->fork);

	pthread_mutex_lock(&of->lock);
	if (r == 0)
		r = copy(of->rec.source, &rec->source);
	if (r == 0)
		r = copy(of->rec.base, &rec->base);
	pthread_mutex_unlock(&of->lock);
	return r;
}

static int fill_record(const struct remote *b, const struct sbx_create *req,
                       struct remote_record *rec)
{
	const struct sbx_settings *s = b->host->settings;
	struct remote_box *of = req->origin.sandbox ? box_of(req->origin.sandbox) : NULL;
	int r = sbx_state_new_id(&b->state, req->name, &rec->id);

	if (r < 0)
		return r;
	rec->phase = REMOTE_PHASE_CREATING;
	rec->created_ms = sbx_real_ms();
	rec->name = strdup(req->name);
	rec->machine = remote_machine_name(rec->id);
	if (!rec->name || !rec->machine)
		return -ENOMEM;
	if (of)
		r = copy_origin(of, req->origin.rev, rec);
	else if (copy(s->source_abs ? s->source_abs : s->source, &rec->source) < 0 ||
	         copy(req->origin.base ? req->origin.base : s->base, &rec->base) < 0)
		r = -ENOMEM;
	if (r < 0)
		return r;
	if (rec->source)
		rec->branch = req->branch ? strdup(req->branch) : branch_for(b, req->name);
	if (rec->source && !rec->branch)
		return -ENOMEM;
	return !rec->source || sbx_git_branch_ok(rec->branch) ? 0 : -EINVAL;
}

/* All that a box of REC has on this machine goes. 0 or -errno. */
static int erase(struct remote *b, const char *id, struct sbx_error *err)
{
	int r = sbx_tree_remove(b->dir, id, err);

	return r ? r : sbx_tree_remove(b->state.nested, id, err);
}

/*
 * Writes the record of a sandbox, and opens it. The machine of a fork (*MACHINE, else NULL) is
 * there before the record that says so, and the box's afterwards.
 */
static int begin(struct remote *b, const struct remote_record *rec, struct sbx_machine **machine,
                 struct remote_box **ret, struct sbx_error *err)
{
	int dir = sbx_dir_make(b->dir, rec->id, 0700);
	int r = dir < 0 ? dir : remote_record_store(dir, rec);

	sbx_cleanup_fd(&dir);
	if (r < 0)
		return sbx_fail(err, -r, "the record of %s cannot be written: %s", rec->name,
		                strerror(-r));
	r = remote_box_open(b, rec, ret, err);
	if (r < 0 || !*machine)
		return r;
	pthread_mutex_lock(&(*ret)->lock);
	(*ret)->machine = sbx_steal_ptr(machine);
	pthread_mutex_unlock(&(*ret)->lock);
	return 0;
}

/* [wait] A machine that begins as that of the origin. Who is killed behind it leaves one that no
 * record names, which is removed as such. */
static int copy_machine(const struct sbx_create *req, struct remote_record *rec,
                        struct sbx_machine **ret, struct sbx_error *err)
{
	struct remote_box *of = box_of(req->origin.sandbox);
	const struct sbx_provider_impl *p = of->backend->provider->impl;
	int r = remote_box_await(of, !req->origin.rev, req->cancelled, err);

	if (r < 0)
		return r;
	r = p->copy(of->machine, rec->machine, ret, req->cancelled, err);
	if (r < 0 && remote_may_come_late(r))
		remote_late_note(of->backend->late, rec->machine);
	if (r < 0)
		return r;
	rec->handle = strdup((*ret)->handle);
	return rec->handle ? 0 : sbx_no_memory(err);
}

static int backend_create(struct sbx_backend *base, const struct sbx_create *req,
                          struct sbx_sandbox **ret, struct sbx_error *err)
{
	struct remote *b = (struct remote *)base;
	_cleanup_(remote_record_release) struct remote_record rec = {0};
	_cleanup_fd_ int spare = -1;
	struct sbx_machine *machine = NULL;
	struct remote_box *box;
	int r = check_request(b, req, err);

	if (r < 0)
		return r;
	/* Where descriptors are few, erase needs this one and that of the directory. */
	spare = fcntl(b->dir, F_DUPFD_CLOEXEC, 0);
	if (spare < 0)
		return sbx_fail(err, errno, "no record can be made: %s", strerror(errno));
	r = fill_record(b, req, &rec);
	if (r == -EINVAL)
		return sbx_fail(err, EINVAL, "%s is no valid branch name", rec.branch);
	if (r < 0)
		return sbx_fail(err, -r, "no record can be made: %s", strerror(-r));
	r = rec.fork ? copy_machine(req, &rec, &machine, err) : 0;
	if (r == 0)
		r = begin(b, &rec, &machine, &box, err);
	if (r < 0) {
		sbx_cleanup_fd(&spare);
		if (machine) {
			b->provider->impl->release(machine);
			b->provider->impl->unmake(b->provider, rec.machine, rec.handle, NULL, NULL);
		}
		erase(b, rec.id, NULL);
		return r;
	}
	*ret = &box->base;
	return 0;
}

/* --- recover ----------------------------------------------------------------------------------
 */

static int note(const struct sbx_recover *r, const char *id, const char *what)
{
	_cleanup_free_ char *text = sbx_format("%s %s", id, what);

	if (!text)
		return -ENOMEM;
	r->note(text, r->data);
	return 0;
}

/* One that is left by a create that was killed before its record was written. */
static int reap(struct remote *b, const char *id, const struct sbx_recover *r,
                struct sbx_error *err)
{
	int code = erase(b, id, err);

	return code ? code : note(r, id, "was never created, and what there is of it is removed");
}

static int take_up(struct remote *b, const struct remote_record *rec, const struct sbx_recover *r,
                   struct sbx_error *err)
{
	struct remote_box *box;
	int code = remote_box_open(b, rec, &box, err);

	if (code < 0)
		return code;
	box->unsure = !rec->handle && rec->phase != REMOTE_PHASE_FAILED;
	if (rec->phase == REMOTE_PHASE_LEAVING && r->leaving) {
		r->leaving(&box->base, r->data);
		return 0;
	}
	box->anew = rec->phase == REMOTE_PHASE_CREATING;
	if (rec->phase == REMOTE_PHASE_UP)
		code = remote_box_adopt(box, err);
	if (code < 0)
		remote_box_close(box);
	else
		r->found(&box->base, r->data);
	return code;
}

static int recover_one(struct remote *b, const char *id, const struct sbx_recover *r,
                       struct sbx_error *err)
{
	_cleanup_(remote_record_release) struct remote_record rec = {0};
	_cleanup_fd_ int dir = sbx_dir_open(b->dir, id);
	struct sbx_error why = SBX_ERROR_INIT;
	int code = dir < 0 ? dir : remote_record_load(dir, &rec);

	if (code == -ENOENT)
		return reap(b, id, r, err);
	if (code < 0)
		return note(r, id, "has a record that cannot be read, and is left alone");
	if (rec.phase == REMOTE_PHASE_LEAVING && !r->leaving)
		return 0;
	code = take_up(b, &rec, r, &why);
	if (code == -ENOMEM)
		return sbx_no_memory(err);
	return code < 0 ? note(r, id, why.text) : 0;
}

static int backend_recover(struct sbx_backend *base, const struct sbx_recover *r,
                           struct sbx_error *err)
{
	struct remote *b = (struct remote *)base;
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};
	int code = sbx_dir_names(b->dir, &names);

	if (code < 0)
		return sbx_fail(err, -code, "%s/remote cannot be read: %s", b->state.path,
		                strerror(-code));
	for (size_t i = 0; i < names.n && code == 0; i++)
		code = recover_one(b, names.items[i], r, err);
	return code;
}

static void backend_begin(struct sbx_backend *base)
{
	struct remote *b = (struct remote *)base;

	remote_sweep_begin(b);
	remote_late_begin(b->late);
	remote_keep_begin(b);
}

/* --- open and destroy -------------------------------------------------------------------------
 */

static void backend_destroy(struct sbx_backend *base)
{
	struct remote *b = (struct remote *)base;

	atomic_store(&b->ending, true);
	sbx_pool_destroy(b->waiters);
	sbx_pool_destroy(b->pool);
	/* The loop has stopped, but what it does before its end may set timers. */
	sbx_loop_timer_cancel(b->host->loop, &b->keeper);
	remote_late_close(b->late);
	remote_works_finish(&b->works);
	b->provider->impl->destroy(b->provider);
	sbx_cleanup_fd(&b->dir);
	sbx_state_close(&b->state);
	pthread_mutex_destroy(&b->lock);
	if (b->git)
		sbx_git_shutdown();
	free(b->daemon);
	free(b->label);
	free(b);
}

/* What is not enforced is not to be believed in. */
static int check_network(const struct sbx_settings *s, const struct sbx_provider_impl *p,
                         struct sbx_error *err)
{
	const char *net = s->net ? s->net : "host";

	if (strcmp(net, "none") == 0 && !(p->can & SBX_PROVIDER_BLOCKS_NETWORK))
		return sbx_fail(err, EOPNOTSUPP,
		                "the %s backend cannot keep commands from the network, as net=none "
		                "would: mount with -o net=host",
		                p->name);
	if (sbx_settings_hosts(s) && !(p->can & SBX_PROVIDER_FILTERS_HOSTS))
		return sbx_fail(err, EOPNOTSUPP,
		                "the %s backend cannot let commands reach some hosts only, as "
		                "net=allow: would: mount with -o net=host",
		                p->name);
	return 0;
}

/* Refused, because they would have no effect and say nothing. */
static int check_settings(const struct sbx_settings *s, const struct sbx_provider_impl *p,
                          struct sbx_error *err)
{
	const struct {
		bool set;
		const char *key, *why;
	} refused[] = {
	        {s->limits.disk_mb, "disk_mb", "the disk of a machine has the size that it has"},
	        {s->cpu_percent, "cpu_percent", "a machine has processors of its own"},
	        {s->run_as, "run_as", "commands run as the machine's own user"},
	        {s->ro_paths.n || s->rw_paths.n || s->hide_paths.n,
	         "ro_paths, rw_paths, hide_paths", "nothing of this host is seen in a machine"},
	        {s->isolation && !strcmp(s->isolation, "require"), "isolation=require",
	         "its means are this host's; the machine is the isolation"},
	        {s->io && !strcmp(s->io, "passthrough"), "io=passthrough",
	         "the kernel would read what is not here"},
	        {s->user_xattr, "user_xattr", "attributes of files are not sent to a machine"},
	        {s->durable && !p->save, "durable",
	         "the provider keeps a machine by itself, and has no means to keep it here"},
	        {s->track, "track", "changes of each command are not recorded there"},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(refused); i++)
		if (refused[i].set)
			return sbx_fail(err, EOPNOTSUPP, "%s is not for the %s backend: %s",
			                refused[i].key, p->name, refused[i].why);
	if (s->branch_exists && strcmp(s->branch_exists, "new") != 0) {
		int r = check_branch_exists(p, s->branch_exists, err);

		if (r < 0)
			return r;
	}
	return check_network(s, p, err);
}

static bool used(const char *name, void *data)
{
	return remote_is_recorded(data, name);
}

static void removed_late(const char *name, void *data)
{
	const struct remote *b = data;

	if (b->host->dropped)
		b->host->dropped(name, "it came after its create was given up, and is removed",
		                 b->host->data);
}

static int open_late(struct remote *b)
{
	return remote_late_open(&(struct remote_late_config){.provider = b->provider,
	                                                     .label = b->label,
	                                                     .state = b->state.dir,
	                                                     .loop = b->host->loop,
	                                                     .pool = b->waiters,
	                                                     .ending = &b->ending,
	                                                     .used = used,
	                                                     .removed = removed_late,
	                                                     .data = b},
	                        &b->late);
}

static int open_parts(struct remote *b, struct sbx_error *err)
{
	const struct sbx_settings *s = b->host->settings;
	uint64_t random;
	int r = sbx_state_open(s->state_dir, &b->state, err);

	if (r == 0)
		r = sbx_state_sign(&b->state, s->source, s->mountpoint, err);
	if (r < 0)
		return r;
	b->dir = sbx_dir_make(b->state.dir, "remote", 0700);
	if (b->dir < 0)
		return sbx_fail(err, -b->dir, "%s/remote cannot be made: %s", b->state.path,
		                strerror(-b->dir));
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return sbx_fail(err, errno, "no random number: %s", strerror(errno));
	b->git = sbx_git_init() == 0;
	b->daemon = sbx_format("%016llx", (unsigned long long)random);
	r = remote_label(b->state.dir, b->state.path, &b->label, err);
	if (r < 0)
		return r;
	if (!b->git || !b->daemon || sbx_pool_create_wide(WORKERS_MOST, false, &b->pool) < 0 ||
	    sbx_pool_create_wide(WAITERS_MOST, false, &b->waiters) < 0 || open_late(b) < 0)
		return sbx_no_memory(err);
	return 0;
}

int sbx_remote_open(const struct sbx_host *host, struct sbx_provider *p, struct sbx_backend **ret,
                    struct sbx_error *err)
{
	struct remote *b = calloc(1, sizeof(*b));
	int r;

	if (!b) {
		p->impl->destroy(p);
		return sbx_no_memory(err);
	}
	b->impl = (struct sbx_backend_impl){.name = p->impl->name,
	                                    .away = true,
	                                    .forks_alone = p->impl->can & SBX_PROVIDER_COPY_ENDS,
	                                    .recover = backend_recover,
	                                    .begin = backend_begin,
	                                    .create = backend_create,
	                                    .destroy = backend_destroy};
	b->base.impl = &b->impl;
	b->host = host;
	b->provider = p;
	b->state = SBX_STATE_CLOSED;
	b->dir = -1;
	remote_works_init(&b->works);
	pthread_mutex_init(&b->lock, NULL);
	r = check_settings(host->settings, p->impl, err);
	if (r == 0)
		r = open_parts(b, err);
	if (r < 0)
		backend_destroy(&b->base);
	else
		*ret = &b->base;
	return r;
}
