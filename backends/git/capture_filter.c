/*
 * What .gitattributes files ask for (line ends, $Id$) is applied as git does when it adds a file, with those files as they are
 * recorded themselves: libgit2 finds them in an index in memory and never looks for them in the tree.
 */
#include <errno.h>
#include <git2/sys/repository.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/capture_impl.h"
#include "backends/git/git_impl.h"
#include "sandboxfs/cleanup.h"

static void entry_for_libgit2(git_index_entry *ret, const struct sbx_index_entry *e,
                              const char *path)
{
	*ret = (git_index_entry){.mode = sbx_index_mode(e), .path = path};
	memcpy(ret->id.id, e->oid, sizeof(e->oid));
}

bool capture_is_attributes(const char *path, size_t len)
{
	static const char name[] = ".gitattributes";
	size_t n = sizeof(name) - 1;

	return len >= n && memcmp(path + len - n, name, n) == 0 &&
	       (len == n || path[len - n - 1] == '/');
}

int capture_filters_show(struct capture *c, const struct sbx_index_entry *e, const char *path,
                         size_t len)
{
	_cleanup_free_ char *name = strndup(path, len);
	git_index_entry entry;

	if (!name)
		return -ENOMEM;
	entry_for_libgit2(&entry, e, name);
	if (S_ISREG(entry.mode))
		git_index_add(c->attributes, &entry);
	c->filtered = true;
	return 0;
}

/* Text that was recorded with CRs keeps them: libgit2 looks into the index for that. */
int capture_filters_load(struct capture *c, const struct capture_item *item, git_filter_list **ret)
{
	git_index_entry entry;
	bool shown = item->known && !item->large && !(item->known->flags & CAPTURE_STAGES) &&
	             S_ISREG(sbx_index_mode(item->known));
	int r;

	*ret = NULL;
	if (!c->filtered)
		return 0;
	r = git_filter_list_load(ret, c->wish->repo, NULL, item->path, GIT_FILTER_TO_ODB,
	                         GIT_FILTER_DEFAULT);
	if (r || !*ret || !shown || capture_is_attributes(item->path, strlen(item->path)))
		return r;
	entry_for_libgit2(&entry, item->known, item->path);
	git_index_add(c->attributes, &entry);
	return 0;
}

static bool has_attribute(const struct capture *c, const char *path, const char *name)
{
	const char *value = NULL;

	return git_attr_get(&value, c->wish->repo, GIT_ATTR_CHECK_INDEX_ONLY, path, name) == 0 &&
	       git_attr_value(value) == GIT_ATTR_VALUE_STRING;
}

bool capture_filters_foreign(const struct capture *c, const char *path)
{
	return has_attribute(c, path, "filter") || has_attribute(c, path, "working-tree-encoding");
}

void capture_filters_unload(struct capture *c, const struct capture_item *item,
                            git_filter_list *filters)
{
	if (filters && !capture_is_attributes(item->path, strlen(item->path)))
		git_index_remove(c->attributes, item->path, 0);
	git_filter_list_free(filters);
}

/* ---- settings ---- */

static bool settings_convert(git_config *config)
{
	const char *value;
	git_buf path = {0};
	bool set = git_config_get_string(&value, config, "core.autocrlf") == 0 &&
	           strcmp(value, "false") != 0;

	if (git_config_get_path(&path, config, "core.attributesfile") == 0) {
		git_buf_dispose(&path);
		set = true;
	}
	return set;
}

static bool has_attribute_files(const char *common)
{
	_cleanup_free_ char *info = sbx_format("%sinfo/attributes", common);
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	_cleanup_free_ char *user =
	        xdg && *xdg ? sbx_format("%s/git/attributes", xdg)
	                    : sbx_format("%s/.config/git/attributes", home ? home : "");

	return (info && access(info, F_OK) == 0) || (user && access(user, F_OK) == 0);
}

static void read_settings(struct capture *c)
{
	git_config *config = NULL, *snapshot = NULL;
	int filemode = 1;

	if (git_repository_config(&config, c->wish->repo) == 0 &&
	    git_config_snapshot(&snapshot, config) == 0) {
		git_config_get_bool(&filemode, snapshot, "core.filemode");
		c->filtered = settings_convert(snapshot);
	}
	c->filemode = filemode;
	c->filtered |= has_attribute_files(git_repository_commondir(c->wish->repo));
	git_config_free(snapshot);
	git_config_free(config);
}

int capture_filters_open(struct capture *c)
{
	int r = git_index_new(&c->attributes);

	read_settings(c);
	return r ? r : git_repository_set_index(c->wish->repo, c->attributes);
}

void capture_filters_close(struct capture *c)
{
	git_repository_set_index(c->wish->repo, NULL);
}
