/*
 * The record of a sandbox, one JSON object per line, in a file below the state directory and, where
 * the user wants one that survives the sandbox, a second file in logs_dir. Each record is one
 * O_APPEND write per file, so records never mix, whoever else appends. A torn last line (the
 * machine died) is closed when the file is opened again, and spoils only itself.
 */
#include "fs/log/log.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"

struct sbx_log {
	char *path; /* of the file below the state directory */
	char *logs_dir;
	pthread_mutex_t lock; /* all below */
	int fd;               /* -1 once finished */
	char *name;
	int copy; /* LOGS_DIR/NAME.jsonl, -1: none */
};

char *sbx_log_line(const char *event, const char *name_key, const char *name,
                   struct json_object *extra, size_t *len)
{
	struct json_object *line = json_object_new_object();
	struct timespec now;
	struct tm tm;
	char date[32], stamp[48];
	const char *text;
	char *ret = NULL;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(stamp, sizeof(stamp), "%s.%03ldZ", date, now.tv_nsec / 1000000);
	json_object_object_add(line, "timestamp", json_object_new_string(stamp));
	if (name)
		json_object_object_add(line, name_key, sbx_text_json(name, strlen(name)));
	json_object_object_add(line, "event", json_object_new_string(event));
	if (extra) {
		json_object_object_foreach(extra, key, value)
		        json_object_object_add(line, key, json_object_get(value));
	}
	text = json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN |
	                                                    JSON_C_TO_STRING_NOSLASHESCAPE);
	if (text && asprintf(&ret, "%s\n", text) < 0)
		ret = NULL;
	*len = ret ? strlen(ret) : 0;
	json_object_put(line);
	return ret;
}

static void append(int fd, const char *buf, size_t len)
{
	ssize_t n;

	do
		n = write(fd, buf, len);
	while (n < 0 && errno == EINTR);
}

static void end_torn_line(int fd, off_t size)
{
	char last;

	if (size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n')
		append(fd, "\n", 1);
}

/* O_NONBLOCK and the check: what stands at the path may be anything, a FIFO for one. */
static int open_file(const char *path)
{
	_cleanup_fd_ int fd =
	        open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	end_torn_line(fd, st.st_size);
	return sbx_steal_fd(&fd);
}

static int open_copy(const char *logs_dir, const char *name)
{
	_cleanup_free_ char *path = NULL;

	if (mkdir(logs_dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (asprintf(&path, "%s/%s.jsonl", logs_dir, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return open_file(path);
}

static int open_main(const char *state_dir, const char *id, char **path)
{
	_cleanup_free_ char *dir = NULL;

	if (asprintf(&dir, "%s/log", state_dir) < 0) {
		dir = NULL;
		return -ENOMEM;
	}
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (asprintf(path, "%s/%s.jsonl", dir, id) < 0) {
		*path = NULL;
		return -ENOMEM;
	}
	return open_file(*path);
}

static int fill(struct sbx_log *log, const char *state_dir, const char *logs_dir, const char *id,
                const char *name)
{
	log->name = strdup(name);
	log->logs_dir = logs_dir ? strdup(logs_dir) : NULL;
	if (!log->name || (logs_dir && !log->logs_dir))
		return -ENOMEM;
	log->fd = open_main(state_dir, id, &log->path);
	if (log->fd < 0)
		return log->fd;
	if (logs_dir)
		log->copy = open_copy(logs_dir, name);
	return logs_dir && log->copy < 0 ? log->copy : 0;
}

int sbx_log_open(const char *state_dir, const char *logs_dir, const char *id, const char *name,
                 struct sbx_log **ret)
{
	struct sbx_log *log = calloc(1, sizeof(*log));
	int r;

	if (!log)
		return -ENOMEM;
	log->fd = log->copy = -1;
	pthread_mutex_init(&log->lock, NULL);
	r = fill(log, state_dir, logs_dir, id, name);
	if (r < 0) {
		sbx_log_close(log);
		return r;
	}
	*ret = log;
	return 0;
}

void sbx_log_close(struct sbx_log *log)
{
	if (!log)
		return;
	sbx_cleanup_fd(&log->fd);
	sbx_cleanup_fd(&log->copy);
	pthread_mutex_destroy(&log->lock);
	free(log->path);
	free(log->logs_dir);
	free(log->name);
	free(log);
}

void sbx_log_remove(struct sbx_log *log)
{
	unlink(log->path);
}

int sbx_log_rename(struct sbx_log *log, const char *name)
{
	_cleanup_free_ char *copy_name = strdup(name);
	_cleanup_fd_ int copy = -1;
	char *old_name;
	int old_copy;

	if (!copy_name)
		return -ENOMEM;
	if (log->logs_dir) {
		copy = open_copy(log->logs_dir, name);
		if (copy < 0)
			return copy;
	}
	pthread_mutex_lock(&log->lock);
	old_name = log->name;
	old_copy = log->copy;
	log->name = sbx_steal_ptr(&copy_name);
	log->copy = sbx_steal_fd(&copy);
	pthread_mutex_unlock(&log->lock);
	free(old_name);
	sbx_cleanup_fd(&old_copy);
	return 0;
}

void sbx_log_finish(struct sbx_log *log)
{
	pthread_mutex_lock(&log->lock);
	sbx_cleanup_fd(&log->fd);
	sbx_cleanup_fd(&log->copy);
	pthread_mutex_unlock(&log->lock);
}

void sbx_log_record(struct sbx_log *log, const char *event, struct json_object *extra)
{
	_cleanup_free_ char *line = NULL;
	size_t len;

	pthread_mutex_lock(&log->lock);
	line = sbx_log_line(event, "task_id", log->name, extra, &len);
	if (line && log->fd >= 0) {
		append(log->fd, line, len);
		if (log->copy >= 0)
			append(log->copy, line, len);
	}
	pthread_mutex_unlock(&log->lock);
	json_object_put(extra);
}

uint64_t sbx_log_size(struct sbx_log *log)
{
	struct stat st;
	int r;

	pthread_mutex_lock(&log->lock);
	r = fstat(log->fd, &st);
	pthread_mutex_unlock(&log->lock);
	return r < 0 ? 0 : (uint64_t)st.st_size;
}

ssize_t sbx_log_read(struct sbx_log *log, void *buf, size_t len, uint64_t off)
{
	ssize_t n;

	pthread_mutex_lock(&log->lock);
	do
		n = log->fd < 0 ? 0 : pread(log->fd, buf, len, (off_t)off);
	while (n < 0 && errno == EINTR);
	n = n < 0 ? -errno : n;
	pthread_mutex_unlock(&log->lock);
	return n;
}
