#include "backends/git/spare.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/import_objects.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

struct sbx_git_spares {
	char *common;
	pthread_mutex_t lock; /* the rest */
	char commit[65];
	int fds[SBX_GIT_SPARES];
	unsigned n;
};

struct sbx_git_spares *sbx_git_spares_new(const char *common)
{
	struct sbx_git_spares *s = calloc(1, sizeof(*s));

	if (!s || !(s->common = strdup(common))) {
		free(s);
		return NULL;
	}
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

static void drop_all(struct sbx_git_spares *s)
{
	while (s->n)
		close(s->fds[--s->n]);
}

void sbx_git_spares_drop(struct sbx_git_spares *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	drop_all(s);
	pthread_mutex_unlock(&s->lock);
}

void sbx_git_spares_free(struct sbx_git_spares *s)
{
	if (!s)
		return;
	drop_all(s);
	pthread_mutex_destroy(&s->lock);
	free(s->common);
	free(s);
}

/* As libgit2 makes the file of a ref. */
int sbx_git_spare_make(const char *common, const char *commit)
{
	_cleanup_free_ char *text = sbx_format("%s\n", commit);
	struct sbx_git_owner owner = sbx_git_owner_begin(common);
	int fd = open(common, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);

	sbx_git_owner_end(&owner);
	if (fd < 0)
		return -1;
	if (text && write(fd, text, strlen(text)) == (ssize_t)strlen(text)) {
		sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
		return fd;
	}
	close(fd);
	return -1;
}

/* False: there are enough. */
static bool wants_more(struct sbx_git_spares *s, const char *commit)
{
	bool more;

	pthread_mutex_lock(&s->lock);
	if (strcmp(s->commit, commit) != 0) {
		drop_all(s);
		snprintf(s->commit, sizeof(s->commit), "%s", commit);
	}
	more = s->n < SBX_GIT_SPARES;
	pthread_mutex_unlock(&s->lock);
	return more;
}

void sbx_git_spares_fill(struct sbx_git_spares *s, const char *commit)
{
	while (wants_more(s, commit)) {
		const int fd = sbx_git_spare_make(s->common, commit);

		if (fd < 0)
			return;
		pthread_mutex_lock(&s->lock);
		assert(s->n < SBX_GIT_SPARES);
		s->fds[s->n++] = fd;
		pthread_mutex_unlock(&s->lock);
	}
}

int sbx_git_spares_take(struct sbx_git_spares *s, const char *commit)
{
	int fd = -1;

	pthread_mutex_lock(&s->lock);
	if (s->n && strcmp(s->commit, commit) == 0)
		fd = s->fds[--s->n];
	pthread_mutex_unlock(&s->lock);
	return fd;
}
