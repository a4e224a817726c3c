#include "backends/local/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <json-c/json.h>
#include <pthread.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/programs.h"
#include "sandboxfs/cleanup.h"

#define PW_MAX 16384

struct sbx_programs {
	struct sbx_git_guard guard;
	const char *trees[3];
	char *mark;
	char *home, *other_home;
	pthread_mutex_t guarding; /* of the files */
	pthread_mutex_t lock;     /* keys, looked */
	bool looked;
	struct sbx_strings keys;
};

/* The same for as long as the state directory is called so (FNV-1a). */
static char *make_mark(const char *path)
{
	uint32_t hash = 2166136261u;

	for (; *path; path++)
		hash = (hash ^ (unsigned char)*path) * 16777619u;
	return sbx_format("%08x", hash);
}

/* The home of UID as the system has it; NULL where there is none. */
static char *home_of(uid_t uid)
{
	_cleanup_free_ char *buf = malloc(PW_MAX);
	struct passwd pw, *found = NULL;

	if (!buf || getpwuid_r(uid, &pw, buf, PW_MAX, &found) || !found || *found->pw_dir != '/')
		return NULL;
	return strdup(found->pw_dir);
}

static char *own_home(void)
{
	const char *home = getenv("HOME");

	return home && *home == '/' ? strdup(home) : home_of(geteuid());
}

/* Of the source's owner, when root mounts: it is he who uses git there. */
static char *owners_home(const char *common)
{
	struct stat st;

	if (geteuid() != 0 || stat(common, &st) < 0 || st.st_uid == 0)
		return NULL;
	return home_of(st.st_uid);
}

int sbx_programs_new(const struct sbx_local *b, struct sbx_programs **ret)
{
	const struct sbx_settings *s = b->host->settings;
	struct sbx_programs *p;

	*ret = NULL;
	if (b->kind != SBX_LOCAL_GIT)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->guarding, NULL);
	pthread_mutex_init(&p->lock, NULL);
	p->mark = make_mark(b->state.path);
	p->home = own_home();
	p->other_home = owners_home(b->common);
	/* The second is how commands see the trees, and where they lie. */
	p->trees[0] = s->mountpoint ? s->mountpoint : b->state.path;
	p->trees[1] = b->state.path;
	p->guard = (struct sbx_git_guard){
	        .common = b->common,
	        .mark = p->mark,
	        .trees = {.paths = p->trees, .home = p->home},
	        .other_home = p->other_home,
	};
	if (!p->mark) {
		sbx_programs_free(p);
		return -ENOMEM;
	}
	if (s->tree_programs) {
		/* What another mount has left, if it can be taken away: the setting is to count. */
		sbx_git_programs_forget(b->common, p->mark);
		sbx_programs_free(p);
		return 0;
	}
	*ret = p;
	return 0;
}

void sbx_programs_free(struct sbx_programs *p)
{
	if (!p)
		return;
	pthread_mutex_destroy(&p->guarding);
	pthread_mutex_destroy(&p->lock);
	sbx_strings_release(&p->keys);
	free(p->mark);
	free(p->home);
	free(p->other_home);
	free(p);
}

int sbx_programs_guard(struct sbx_programs *p, const char *worktree, struct sbx_error *err)
{
	struct sbx_strings keys = {0}, was;
	struct sbx_git_guard guard;
	int r;

	if (!p)
		return 0;
	guard = p->guard;
	guard.worktree = worktree;
	pthread_mutex_lock(&p->guarding);
	r = sbx_git_programs_guard(&guard, &keys, err);
	pthread_mutex_unlock(&p->guarding);
	pthread_mutex_lock(&p->lock);
	was = p->keys;
	p->keys = keys;
	p->looked = true;
	pthread_mutex_unlock(&p->lock);
	sbx_strings_release(&was);
	return r;
}

static int find_entry(const char *name, unsigned char type, void *data)
{
	(void)type;
	(void)data;
	return fnmatch(SBX_GIT_ENTRIES, name, 0) == 0;
}

void sbx_programs_gone(struct sbx_programs *p)
{
	_cleanup_free_ char *path = p ? sbx_format("%s/worktrees", p->guard.common) : NULL;
	_cleanup_fd_ int dir = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (!path || (dir < 0 && errno != ENOENT) ||
	    (dir >= 0 && sbx_dir_scan(dir, find_entry, NULL)))
		return;
	pthread_mutex_lock(&p->guarding);
	/* What cannot be taken away is for worktrees that are not there. */
	sbx_git_programs_forget(p->guard.common, p->mark);
	pthread_mutex_unlock(&p->guarding);
}

void sbx_programs_info(struct sbx_programs *p, struct json_object *obj)
{
	struct json_object *list;

	if (!p)
		return;
	list = json_object_new_array();
	pthread_mutex_lock(&p->lock);
	/* Once: from then on each use of git tells. */
	if (!p->looked)
		sbx_git_programs_look(&p->guard, &p->keys);
	p->looked = true;
	for (size_t i = 0; i < p->keys.n; i++) {
		const struct sbx_git_program *program = sbx_git_program_find(p->keys.items[i]);
		_cleanup_free_ char *text =
		        sbx_format("%s leads into the tree, so git on the host goes without it: %s "
		                   "(mount with "
		                   "-o git_programs=tree to go by it)",
		                   p->keys.items[i], program ? program->then : "off");

		if (text)
			json_object_array_add(list, json_object_new_string(text));
	}
	pthread_mutex_unlock(&p->lock);
	if (json_object_array_length(list))
		json_object_object_add(obj, "git_programs", list);
	else
		json_object_put(list);
}
