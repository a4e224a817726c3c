#include "backends/local/overlay/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/local/overlay/overlay.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

#define HEAD_MAX 4096

int sbx_local_entry_open(const struct sbx_record *rec, struct sbx_error *err)
{
	_cleanup_free_ char *path = sbx_format("%s/worktrees/%s", rec->common, rec->worktree);
	int fd = path ? sbx_dir_open(AT_FDCWD, path) : -ENOMEM;

	return fd < 0 ? sbx_fail(err, -fd, "cannot open the worktree's entry of %s: %s", rec->name,
	                         strerror(-fd))
	              : fd;
}

static int resolve(const struct sbx_record *rec, const char *head, git_oid *ret)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	const char *prefix = "ref: ";
	int r = sbx_git_open(rec->common, &repo);

	if (r)
		return r;
	return strncmp(head, prefix, strlen(prefix)) == 0
	               ? git_reference_name_to_id(ret, repo, head + strlen(prefix))
	               : git_oid_fromstr(ret, head);
}

int sbx_local_head(const struct sbx_record *rec, int entry, char ret[GIT_OID_HEXSZ + 1],
                   struct sbx_error *err)
{
	_cleanup_free_ char *head = NULL;
	git_oid oid;
	int r = sbx_file_read(entry, "HEAD", HEAD_MAX, &head);

	if (r)
		return sbx_fail(err, -r, "cannot read HEAD of %s: %s", rec->name, strerror(-r));
	head[strcspn(head, "\n")] = '\0';
	r = resolve(rec, head, &oid);
	if (r == GIT_ENOTFOUND)
		return sbx_fail(err, EINVAL, "%s has no commit checked out", rec->name);
	if (r)
		return sbx_git_fail(err, r, "cannot read HEAD of %s", rec->name);
	git_oid_tostr(ret, GIT_OID_HEXSZ + 1, &oid);
	return 0;
}

int sbx_local_upper(const struct sbx_local *b, const struct sbx_record *rec, int disk)
{
	_cleanup_fd_ int dir = -1;

	if (disk >= 0)
		return sbx_dir_open(disk, "upper");
	dir = sbx_dir_open(b->state.trees, rec->id);
	if (dir == -ENOENT)
		dir = sbx_dir_open(b->state.trash, rec->id);
	return dir < 0 ? dir : sbx_dir_open(dir, "upper");
}

int sbx_local_repo(const struct sbx_local *b, const struct sbx_record *rec, int disk)
{
	static const char *const names[] = {"repo", "saved/repo"};
	_cleanup_fd_ int dir = -1;
	int fd = disk < 0 ? -ENOENT : sbx_beneath_open(disk, "git/repo", O_RDONLY | O_DIRECTORY);

	if (fd == -ENOENT)
		dir = sbx_dir_open(b->state.git, rec->id);
	for (size_t i = 0; fd == -ENOENT && dir >= 0 && i < SBX_ARRAY_SIZE(names); i++)
		fd = sbx_beneath_open(dir, names[i], O_RDONLY | O_DIRECTORY);
	return fd;
}

struct sbx_identity sbx_local_owner(const struct sbx_local *b, const struct sbx_record *rec)
{
	if (rec->layer && b->overlay)
		return *sbx_overlay_owner(b->overlay);
	return (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
}

int sbx_local_base_dir(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *path = NULL;

	if (!rec->layer || !b->overlay)
		return -ENOENT;
	path = sbx_format("%s/%s", sbx_bases_path(sbx_overlay_bases(b->overlay)), rec->layer);
	return path ? sbx_dir_open(AT_FDCWD, path) : -ENOMEM;
}

unsigned sbx_local_results(const struct sbx_local *b, const struct sbx_record *rec, bool fresh)
{
	_cleanup_fd_ int base = sbx_local_base_dir(b, rec), tree = -1, upper = -1;

	if (base < 0) {
		tree = sbx_dir_open(b->state.trees, rec->id);
		return sbx_result_names_in(tree);
	}
	tree = sbx_dir_open(base, "tree");
	upper = fresh ? sbx_local_upper(b, rec, -1) : -1;
	return sbx_result_names_in(tree) | sbx_result_names_in(upper);
}
