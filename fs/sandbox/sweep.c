/*
 * What the daemon itself keeps per sandbox below the state directory, as opposed to the backend: logs
 * (log/ID.jsonl) and the spilled output of jobs (jobs/ID/). A daemon that was killed leaves
 * both behind; the next one takes away what belongs to nobody.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/cleanup.h"

/* Called with the descriptor of the directory and a name in it. */
typedef void (*entry_fn)(struct sbx_registry *reg, int fd, const char *name);

static int open_dir(int at, const char *name)
{
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void each_entry(struct sbx_registry *reg, int at, const char *name, entry_fn fn)
{
	int fd = open_dir(at, name);
	_cleanup_dir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		sbx_cleanup_fd(&fd);
		return;
	}
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			fn(reg, fd, e->d_name);
}

/* Recovery is single-threaded, so the array needs no lock. */
static bool is_known(struct sbx_registry *reg, const char *id, size_t len)
{
	for (size_t i = 0; i < reg->n; i++) {
		const char *known = reg->boxes[i]->pub.sandbox->id;

		if (strlen(known) == len && strncmp(known, id, len) == 0)
			return true;
	}
	return false;
}

static void sweep_log(struct sbx_registry *reg, int fd, const char *name)
{
	const char *dot = strrchr(name, '.');

	if (dot && strcmp(dot, ".jsonl") == 0 && !is_known(reg, name, (size_t)(dot - name)))
		unlinkat(fd, name, 0);
}

static void sweep_file(struct sbx_registry *reg, int fd, const char *name)
{
	(void)reg;
	unlinkat(fd, name, 0);
}

/* The jobs whose output this was are gone with their daemon, or with their sandbox. */
static void sweep_jobs(struct sbx_registry *reg, int fd, const char *name)
{
	each_entry(reg, fd, name, sweep_file);
	unlinkat(fd, name, AT_REMOVEDIR);
}

void sbx_registry_sweep(struct sbx_registry *reg)
{
	_cleanup_fd_ int fd = open_dir(AT_FDCWD, reg->config.settings->state_dir);

	if (fd < 0)
		return;
	each_entry(reg, fd, "log", sweep_log);
	each_entry(reg, fd, "jobs", sweep_jobs);
}

void sbx_box_sweep(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;
	_cleanup_fd_ int state = open_dir(AT_FDCWD, reg->config.settings->state_dir);
	_cleanup_fd_ int fd = state < 0 ? -1 : open_dir(state, "jobs");

	if (fd >= 0)
		sweep_jobs(reg, fd, box->pub.sandbox->id);
}
