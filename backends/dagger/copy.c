/*
 * A machine that begins as another is by now, and the end of either. A container never changes, so
 * that a copy is a record with the same id, and no query. Its first run gives it a mark of its own
 * (run.c).
 *
 * An id that is a recipe names files of the folders of those that it comes from. So a copy knows
 * these (dagger_kept.needs), and has a file of its name in FOLDER/for; the last one that needs a
 * folder takes it along.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/tree.h"

#define FOR "for"

/* ---- who needs a folder ---- */

/* Calls fn for each name of NEEDS, which may be NULL, until it fails. */
static int each_need(const char *needs, int (*fn)(const char *need, void *data), void *data)
{
	char need[DAGGER_NAME_MAX + 1];
	int r = 0;

	for (size_t n; needs && *needs && !r; needs += n + strspn(needs + n, " ")) {
		n = strcspn(needs, " ");
		if (n <= DAGGER_NAME_MAX) {
			snprintf(need, sizeof(need), "%.*s", (int)n, needs);
			if (dagger_name_ok(need))
				r = fn(need, data);
		}
	}
	return r;
}

static bool is_kept(struct dagger *d, const char *name)
{
	return faccessat(d->dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

struct noting {
	struct dagger *d;
	const char *name;
	struct sbx_error *err;
};

static int note_need(const char *need, void *data)
{
	const struct noting *n = data;
	_cleanup_fd_ int dir = -1, names = -1, file = -1;
	char folder[DAGGER_NAME_MAX + 8];

	snprintf(folder, sizeof(folder), "%s.d", need);
	dir = sbx_dir_make(n->d->dir, folder, 0700);
	if (dir >= 0)
		names = sbx_dir_make(dir, FOR, 0700);
	if (names >= 0)
		file = openat(names, n->name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0 || fsync(file) < 0 || fsync(names) < 0 || fsync(dir) < 0)
		return sbx_fail(n->err,
		                dir < 0     ? -dir
		                : names < 0 ? -names
		                            : errno,
		                "%s/%s cannot be kept for a copy", n->d->path, folder);
	return 0;
}

struct dropping {
	struct dagger *d;
	const char *name; /* who goes */
	struct sbx_error *err;
};

/* Whether somebody needs FOLDER but who goes. */
static bool is_needed(const struct dropping *drop, int folder)
{
	_cleanup_fd_ int dir = sbx_dir_open(folder, FOR);
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};

	if (dir == -ENOENT)
		return false;
	if (dir < 0 || sbx_dir_names(dir, &names) < 0)
		return true;
	for (size_t i = 0; i < names.n; i++)
		if (strcmp(names.items[i], drop->name) != 0 && is_kept(drop->d, names.items[i]))
			return true;
	return false;
}

/* The folder of NAME, whose record is gone, or going, goes unless it is needed. */
static int drop_folder(const struct dropping *drop, const char *name)
{
	_cleanup_fd_ int folder = -1;
	char path[DAGGER_NAME_MAX + 8];

	snprintf(path, sizeof(path), "%s.d", name);
	folder = sbx_dir_open(drop->d->dir, path);
	if (folder == -ENOENT)
		return 0;
	if (folder < 0)
		return sbx_fail(drop->err, -folder, "%s/%s cannot be opened: %s", drop->d->path,
		                path, strerror(-folder));
	if (!is_needed(drop, folder))
		return sbx_tree_remove(drop->d->dir, path, drop->err);
	/* These stood for its own files. */
	unlinkat(folder, DAGGER_ARCHIVE, 0);
	return sbx_tree_remove(folder, DAGGER_STATES, drop->err);
}

static int drop_need(const char *need, void *data)
{
	const struct dropping *drop = data;
	char path[2 * DAGGER_NAME_MAX + 16];

	if (!is_kept(drop->d, need))
		return drop_folder(drop, need);
	snprintf(path, sizeof(path), "%s.d/" FOR "/%s", need, drop->name);
	unlinkat(drop->d->dir, path, 0);
	return 0;
}

/*
 * A container that nobody names is forgotten by the engine in its own time. The record goes last:
 * who is killed before finds in it which folders are left.
 */
int dagger_unmake(struct sbx_provider *p, const char *name, const char *handle,
                  atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger *d = dagger_of(p);
	struct dropping drop = {d, name, err};
	struct dagger_kept kept = {0};
	int r = dagger_name_check(name, err);

	(void)handle;
	(void)cancelled;
	if (r)
		return r;
	pthread_mutex_lock(&d->folders);
	dagger_load(d, name, &kept, NULL);
	r = drop_folder(&drop, name);
	if (!r)
		r = each_need(kept.needs, drop_need, &drop);
	if (!r && unlinkat(d->dir, name, 0) < 0 && errno != ENOENT)
		r = sbx_fail(err, errno, "%s/%s cannot be removed: %s", d->path, name,
		             strerror(errno));
	pthread_mutex_unlock(&d->folders);
	dagger_kept_release(&kept);
	return r;
}

/* ---- the copy ---- */

/* What a copy of M has for its record. */
static int read_origin(struct dagger_machine *m, struct dagger_kept *ret)
{
	const char *mark;

	ret->id = dagger_machine_id(m, &mark, &ret->layers);
	ret->label = strdup(m->label);
	ret->owner = strdup(m->owner);
	ret->mark = strdup(mark);
	if (asprintf(&ret->needs, "%s%s%s", m->name, m->needs ? " " : "",
	             m->needs ? m->needs : "") < 0)
		ret->needs = NULL;
	ret->made_ms = sbx_real_ms();
	return ret->id && ret->label && ret->owner && ret->mark && ret->needs ? 0 : -ENOMEM;
}

int dagger_copy(struct sbx_machine *machine, const char *name, struct sbx_machine **ret,
                atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger *d = dagger_of(machine->provider);
	struct dagger_kept kept = {0};
	struct noting noting = {d, name, err};
	struct dagger_machine *m = NULL;
	int r = dagger_name_check(name, err);

	(void)cancelled;
	if (!r && read_origin(dagger_machine_of(machine), &kept))
		r = sbx_no_memory(err);
	if (!r)
		r = each_need(kept.needs, note_need, &noting);
	if (!r)
		r = dagger_store(d, name, &kept, err);
	if (!r) {
		m = dagger_machine_new(d, name, &kept);
		r = m ? 0 : sbx_no_memory(err);
		if (r)
			dagger_unmake(&d->base, name, NULL, NULL, NULL);
	}
	dagger_kept_release(&kept);
	if (m)
		*ret = &m->base;
	return r;
}
