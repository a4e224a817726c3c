/* Snapshots, looked into: one repository handle for a sandbox, opened when it is first needed. libgit2's objects may be read by many. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/blob.h"
#include "backends/git/git_impl.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history_ops.h"
#include "sandboxfs/cleanup.h"

/* The sandbox's; not to be freed. NULL: it cannot be opened. */
static git_repository *reader(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	const struct sbx_past_place place = sbx_local_place(sb);
	git_repository *repo;

	pthread_mutex_lock(&s->lock);
	if (!s->past && sbx_past_open(&place, true, &s->past, err))
		s->past = NULL;
	repo = s->past;
	pthread_mutex_unlock(&s->lock);
	return repo;
}

static int describe(git_odb *odb, const git_oid *oid, git_filemode_t mode, struct sbx_object *ret)
{
	git_object_t type;
	size_t size = 0;
	int r;

	*ret = (struct sbx_object){.mode = S_IFDIR | 0755};
	if (mode == GIT_FILEMODE_COMMIT)
		return 0;
	git_oid_tostr(ret->id, sizeof(ret->id), oid);
	if (mode == GIT_FILEMODE_TREE)
		return 0;
	r = git_odb_read_header(&size, &type, odb, oid);
	if (r)
		return sbx_git_object_code(r);
	ret->size = size;
	ret->mode = mode == GIT_FILEMODE_LINK              ? S_IFLNK | 0777
	            : mode == GIT_FILEMODE_BLOB_EXECUTABLE ? S_IFREG | 0755
	                                                   : S_IFREG | 0644;
	return 0;
}

/* Recording it takes as long as reading all of it, which is not for who only looks something up. */
static int check_base(const struct sbx_past_place *place, struct sbx_error *err)
{
	_cleanup_fd_ int dir = -1;
	git_oid oid;

	if (place->rec->common)
		return 0;
	dir = sbx_past_dir(place, err);
	if (dir < 0)
		return dir;
	return sbx_past_read_id(dir, "base", &oid)
	               ? sbx_fail(err, EBUSY,
	                          "what it began as is recorded with the first snapshot or diff")
	               : 0;
}

int sbx_local_tree(struct sbx_sandbox *sb, const char *rev, struct sbx_object *ret,
                   struct sbx_error *err)
{
	const struct sbx_past_place place = sbx_local_place(sb);
	struct sbx_error unasked = SBX_ERROR_INIT;
	git_repository *repo;
	struct sbx_past_rev found;
	int r;

	if (!err)
		err = &unasked;
	repo = reader(sb, err);
	r = strcmp(rev, "base") == 0 ? check_base(&place, err) : 0;
	if (r)
		return r;
	r = repo ? sbx_past_resolve(&place, repo, rev, &found, err) : -err->code;
	if (r)
		return r;
	*ret = (struct sbx_object){.mode = S_IFDIR | 0755};
	git_oid_tostr(ret->id, sizeof(ret->id), &found.tree);
	return 0;
}

static int open_tree(struct sbx_sandbox *sb, const char *id, git_tree **tree, git_odb **odb)
{
	struct sbx_error err = SBX_ERROR_INIT;
	git_repository *repo = reader(sb, &err);
	git_oid oid;
	int r;

	if (!repo)
		return -err.code;
	if (git_oid_fromstr(&oid, id))
		return -ENOENT;
	r = git_tree_lookup(tree, repo, &oid);
	if (!r)
		r = git_repository_odb(odb, repo);
	return r ? sbx_git_object_code(r) : 0;
}

int sbx_local_entry(struct sbx_sandbox *sb, const char *dir, const char *name,
                    struct sbx_object *ret)
{
	_cleanup_git_(tree) git_tree *tree = NULL;
	_cleanup_git_(odb) git_odb *odb = NULL;
	const git_tree_entry *entry;
	int r = open_tree(sb, dir, &tree, &odb);

	if (r)
		return r;
	entry = git_tree_entry_byname(tree, name);
	return entry ? describe(odb, git_tree_entry_id(entry), git_tree_entry_filemode(entry), ret)
	             : -ENOENT;
}

int sbx_local_entries(struct sbx_sandbox *sb, const char *dir,
                      int (*fn)(const char *name, const struct sbx_object *o, void *data),
                      void *data)
{
	_cleanup_git_(tree) git_tree *tree = NULL;
	_cleanup_git_(odb) git_odb *odb = NULL;
	int r = open_tree(sb, dir, &tree, &odb);

	for (size_t i = 0; !r && i < git_tree_entrycount(tree); i++) {
		const git_tree_entry *entry = git_tree_entry_byindex(tree, i);
		struct sbx_object object;

		r = describe(odb, git_tree_entry_id(entry), git_tree_entry_filemode(entry),
		             &object);
		if (!r)
			r = fn(git_tree_entry_name(entry), &object, data);
	}
	return r;
}

int sbx_local_content(struct sbx_sandbox *sb, const char *id, int fd)
{
	struct sbx_error err = SBX_ERROR_INIT;
	git_repository *repo = reader(sb, &err);
	_cleanup_git_(odb) git_odb *odb = NULL;
	git_oid oid;
	int r;

	if (!repo)
		return -err.code;
	if (git_oid_fromstr(&oid, id))
		return -ENOENT;
	r = git_repository_odb(&odb, repo);
	return r ? sbx_git_object_code(r) : sbx_git_blob_write(odb, &oid, fd);
}
