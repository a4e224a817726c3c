/*
 * The history of a sandbox elsewhere, kept by the git of its machine (git.sh). What is asked of it
 * takes a network, so it is asked in the pool only: the list of snapshots is kept here as well, in
 * STATE/remote/ID/snapshots, a line of JSON each, and what would browse one is refused.
 *
 * A provider that has the verb keep keeps the machine as well, as it is: that is what is gone back
 * to where the machine has no git, its tree is no repository, or that does not have the commit. By
 * git is first, because what was committed since, ignored files and all outside of the tree stay.
 */
#include "backends/remote/history.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "backends/remote/ask.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/history.h"

#define DEADLINE_MS 120000
#define MESSAGE_MAX ((size_t)1024) /* bytes that are kept here; the commit has them all */

static struct remote_box *box_of(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb, struct remote_box, base);
}

/* --- the list ---------------------------------------------------------------------------------
 */

static void put_json(json_object **obj)
{
	json_object_put(*obj);
}

/* Bytes of TEXT up to MESSAGE_MAX, of whole characters. */
static size_t message_len(const char *text)
{
	size_t n = strnlen(text, MESSAGE_MAX + 1);

	if (n <= MESSAGE_MAX)
		return n;
	for (n = MESSAGE_MAX; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
		n--;
	return n;
}

/* Whether the last line of the file FD was cut, by a crash or a full disk. */
static bool is_torn(int fd)
{
	const off_t size = lseek(fd, 0, SEEK_END);
	char last;

	return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

static int append_line(struct remote_box *box, const struct sbx_snapshot *s, struct sbx_error *err)
{
	_cleanup_(put_json) json_object *obj = json_object_new_object();
	_cleanup_free_ char *line = NULL;
	_cleanup_fd_ int fd = openat(box->dir, "snapshots",
	                             O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	json_object_object_add(obj, "id", json_object_new_string(s->id));
	json_object_object_add(
	        obj, "message",
	        json_object_new_string_len(s->message, (int)message_len(s->message)));
	json_object_object_add(obj, "time_ms", json_object_new_int64(s->time_ms));
	line = sbx_format("%s%s\n", fd >= 0 && is_torn(fd) ? "\n" : "",
	                  json_object_to_json_string_ext(obj, JSON_C_TO_STRING_PLAIN));
	if (!line)
		return sbx_no_memory(err);
	r = fd < 0 ? -errno : sbx_write_all(fd, line, strlen(line));
	return r < 0 ? sbx_fail(err, -r, "the list of snapshots cannot be written: %s",
	                        strerror(-r))
	             : 0;
}

/* A line that was cut by a crash is no snapshot that anybody was told of. */
static int tell_line(const char *line, int (*fn)(const struct sbx_snapshot *s, void *data),
                     void *data)
{
	_cleanup_(put_json) json_object *obj = json_tokener_parse(line);
	json_object *id, *message, *time;

	if (!json_object_object_get_ex(obj, "id", &id) ||
	    !json_object_object_get_ex(obj, "message", &message) ||
	    !json_object_object_get_ex(obj, "time_ms", &time))
		return 0;
	return fn(&(struct sbx_snapshot){.id = json_object_get_string(id),
	                                 .message = json_object_get_string(message),
	                                 .time_ms = json_object_get_int64(time)},
	          data);
}

static int list(struct sbx_sandbox *sb, int (*fn)(const struct sbx_snapshot *s, void *data),
                void *data, struct sbx_error *err)
{
	_cleanup_free_ char *line = NULL;
	int fd = openat(box_of(sb)->dir, "snapshots", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	size_t size = 0;
	ssize_t n;
	int r = 0;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (!file) {
		r = sbx_fail(err, errno, "the list of snapshots cannot be read: %s",
		             strerror(errno));
		sbx_cleanup_fd(&fd);
		return r;
	}
	errno = 0;
	while (r == 0 && (n = getline(&line, &size, file)) > 0)
		if (line[n - 1] == '\n') {
			line[n - 1] = '\0';
			r = tell_line(line, fn, data);
		}
	if (r == 0 && !feof(file))
		r = sbx_fail(err, errno ? errno : EIO, "the list of snapshots cannot be read: %s",
		             strerror(errno ? errno : EIO));
	fclose(file);
	return r;
}

/* --- what the machine does --------------------------------------------------------------------
 */

/* The value of the I frame KEY; NULL: the answer has none. Borrowed. */
static const char *info_of(const struct remote_reply *reply, const char *key)
{
	size_t at = 0;
	const struct remote_frame *f = remote_reply_next(reply, &at, REMOTE_INFO, key);

	return f ? f->bytes : NULL;
}

static int split_author(const char *author, char **name, char **mail, struct sbx_error *err)
{
	const char *open = author ? strrchr(author, '<') : NULL;
	const char *close = open ? strchr(open, '>') : NULL;
	size_t len = open ? (size_t)(open - author) : 0;

	if (author && (!close || close[1] || strpbrk(author, "\n\r")))
		return sbx_fail(err, EINVAL, "an author is \"Name <mail>\"");
	while (len > 0 && author[len - 1] == ' ')
		len--;
	*name = author ? strndup(author, len) : strdup("sandboxfs");
	*mail = author ? strndup(open + 1, (size_t)(close - open - 1))
	               : strdup("sandboxfs@localhost");
	return *name && *mail ? 0 : sbx_no_memory(err);
}

/* Adds FUNCTION with its WORDS, of which NULL is an empty one. */
static void add_line(struct remote_text *body, const char *function, const char *const *words,
                     size_t n)
{
	remote_text_add(body, function);
	for (size_t i = 0; i < n; i++)
		remote_text_word(body, words[i] ? words[i] : "");
	remote_text_add(body, "\n");
}
#define ADD_LINE(body, function, ...)                                                              \
	add_line(body, function, (const char *const[]){__VA_ARGS__},                               \
	         SBX_ARRAY_SIZE(((const char *const[]){__VA_ARGS__})))

/* --- without git ------------------------------------------------------------------------------
 */

#define PREVIOUS "mark:restore"

static const struct sbx_provider_impl *provider_of(const struct remote_box *box)
{
	return box->backend->provider->impl;
}

/* As many digits as a commit has. */
static int make_id(char id[SBX_REV_MAX], struct sbx_error *err)
{
	unsigned char bytes[20];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return sbx_fail(err, errno, "there are no random bytes: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(id + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* A snapshot, or a mark, of the machine as it is. */
static int keep(struct remote_box *box, const struct sbx_snapshot_options *options,
                char id[SBX_REV_MAX], struct sbx_error *err)
{
	_cleanup_free_ char *message = NULL;
	/* What the call has sent before it was refused is sent once more. */
	int r = remote_box_await(box, true, options->cancelled, err);

	if (r == 0 && options->mark)
		snprintf(id, SBX_REV_MAX, "mark:%s", options->mark);
	else if (r == 0)
		r = make_id(id, err);
	if (r == 0)
		r = provider_of(box)->keep(box->machine, id, err);
	if (r < 0 || options->mark)
		return r;
	message = options->message && *options->message ? strdup(options->message)
	                                                : sbx_format("snapshot-%.12s", id);
	if (!message)
		return sbx_no_memory(err);
	return append_line(
	        box, &(struct sbx_snapshot){.id = id, .message = message, .time_ms = sbx_real_ms()},
	        err);
}

/* What KEY was kept as is by git now. */
static int drop(struct remote_box *box, const char *key, struct sbx_error *err)
{
	return provider_of(box)->drop ? provider_of(box)->drop(box->machine, key, err) : 0;
}

struct finding {
	const char *start;
	char id[SBX_REV_MAX];
	unsigned n;
};

static int find_one(const struct sbx_snapshot *s, void *data)
{
	struct finding *f = data;

	if (strncmp(s->id, f->start, strlen(f->start)) == 0) {
		snprintf(f->id, sizeof(f->id), "%s", s->id);
		f->n++;
	}
	return 0;
}

/* The name that REV is kept as, if it is. */
static int find_kept(struct remote_box *box, const char *rev, char key[SBX_REV_MAX],
                     struct sbx_error *err)
{
	struct finding f = {.start = rev};
	int r = 0;

	snprintf(key, SBX_REV_MAX, "%s", rev);
	if (strcmp(rev, "base") != 0 && strncmp(rev, "mark:", 5) != 0) {
		r = list(&box->base, find_one, &f, err);
		snprintf(key, SBX_REV_MAX, "%s", f.n == 1 ? f.id : rev);
	}
	return r;
}

/* All that the host has changed is in what is left, which stays as the mark restore. */
static int go_back(struct remote_box *box, const char *rev, atomic_bool *cancelled,
                   struct sbx_error *err)
{
	char key[SBX_REV_MAX];
	int r = find_kept(box, rev, key, err);

	if (r == 0)
		r = remote_box_await(box, true, cancelled, err);
	if (r == 0)
		r = provider_of(box)->back(box->machine, key, PREVIOUS, cancelled, err);
	if (r < 0)
		return r;
	/* From here on it is done. A listing that fails comes later; nothing is believed before. */
	r = remote_tree_refresh(box->tree, false, NULL, cancelled, err);
	if (r < 0) {
		remote_tree_distrust(box->tree);
		pthread_mutex_lock(&box->lock);
		box->verified = false;
		pthread_mutex_unlock(&box->lock);
	}
	return r;
}

/* --- what is asked for ------------------------------------------------------------------------
 */

static int snapshot(struct sbx_sandbox *sb, const struct sbx_snapshot_options *options,
                    char id[SBX_REV_MAX], struct sbx_error *err)
{
	struct remote_box *box = box_of(sb);
	struct remote_ask ask = {.op = "snapshot", .deadline_ms = DEADLINE_MS};
	_cleanup_(remote_reply_release) struct remote_reply reply = {0};
	_cleanup_free_ char *name = NULL, *mail = NULL;
	const char *oid, *message;
	int r = split_author(options->author, &name, &mail, err);

	if (r < 0)
		return r;
	ADD_LINE(&ask.body, "r_snapshot", options->mark, options->message, name, mail,
	         options->ignored ? "ignored" : NULL);
	r = remote_box_ask(box, &ask, options->cancelled, &reply, err);
	if (r == -EOPNOTSUPP && provider_of(box)->keep)
		return keep(box, options, id, err);
	if (r < 0)
		return r;
	oid = info_of(&reply, "id");
	message = info_of(&reply, "message");
	if (!oid || !message || sbx_rev_check(oid, NULL) < 0 || strlen(oid) >= SBX_REV_MAX)
		return sbx_fail(err, EPROTO, "the machine did not say which commit it made");
	if (options->mark) {
		snprintf(id, SBX_REV_MAX, "mark:%s", options->mark);
		return drop(box, id, err);
	}
	snprintf(id, SBX_REV_MAX, "%s", oid);
	if (provider_of(box)->keep)
		r = provider_of(box)->keep(box->machine, id, err);
	if (r < 0)
		return r;
	return append_line(
	        box,
	        &(struct sbx_snapshot){.id = oid, .message = message, .time_ms = sbx_real_ms()},
	        err);
}

static int forget(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	struct remote_box *box = box_of(sb);
	struct remote_ask ask = {.op = "snapshot", .safe = true, .deadline_ms = DEADLINE_MS};
	_cleanup_(remote_reply_release) struct remote_reply reply = {0};
	char key[SBX_REV_MAX];
	int r;

	ADD_LINE(&ask.body, "r_forget", name);
	r = remote_box_ask(box, &ask, NULL, &reply, err);
	if (r < 0 && (r != -EOPNOTSUPP || !provider_of(box)->drop))
		return r;
	snprintf(key, sizeof(key), "mark:%s", name);
	return drop(box, key, err);
}

static int restore(struct sbx_sandbox *sb, const char *rev, atomic_bool *cancelled,
                   struct sbx_error *err)
{
	struct remote_box *box = box_of(sb);
	struct remote_ask ask = {.op = "restore", .writes = true, .deadline_ms = DEADLINE_MS};
	_cleanup_(remote_reply_release) struct remote_reply reply = {0};
	int r;

	if (provider_of(box)->back && strncmp(rev, "mark:", 5) == 0) {
		r = go_back(box, rev, cancelled, err);
		if (r != -ENOENT)
			return r;
	}
	ADD_LINE(&ask.body, "r_restore", rev, box->rec.branch);
	r = remote_box_ask(box, &ask, cancelled, &reply, err);
	if (provider_of(box)->back && (r == -EOPNOTSUPP || r == -ENOENT)) {
		r = go_back(box, rev, cancelled, err);
		return r == -ENOENT ? sbx_fail(err, ENOENT, "there is no snapshot %s", rev) : r;
	}
	return r == 0 ? drop(box, PREVIOUS, err) : r;
}

static int diff(struct sbx_sandbox *sb, const struct sbx_diff_options *options, int fd,
                struct sbx_error *err)
{
	struct remote_ask ask = {.op = "diff", .safe = true, .deadline_ms = DEADLINE_MS};
	_cleanup_(remote_reply_release) struct remote_reply reply = {0};
	const struct remote_frame *f;
	size_t at = 0;
	int r;

	/* The tree as it is can be looked at from one side only. */
	if (!options->from)
		return sbx_fail(err, EOPNOTSUPP, "a diff begins with a state that was recorded");
	ADD_LINE(&ask.body, "r_diff", options->from, options->to,
	         options->format == SBX_DIFF_NAMES ? "names" : "patch");
	r = remote_box_ask(box_of(sb), &ask, options->cancelled, &reply, err);
	if (r < 0)
		return r;
	f = remote_reply_next(&reply, &at, REMOTE_DATA, "diff");
	if (!f)
		return sbx_fail(err, EPROTO, "the machine did not answer with a diff");
	r = sbx_write_all(fd, f->bytes, f->len);
	return r < 0 ? sbx_fail(err, -r, "the diff cannot be written: %s", strerror(-r)) : 0;
}

/* --- what is not browsed ----------------------------------------------------------------------
 */

static int tree(struct sbx_sandbox *sb, const char *rev, struct sbx_object *ret,
                struct sbx_error *err)
{
	(void)sb;
	(void)rev;
	(void)ret;
	return sbx_fail(err, EOPNOTSUPP,
	                "snapshots of a sandbox elsewhere cannot be browsed: use diff, or restore");
}

static int entry(struct sbx_sandbox *sb, const char *dir, const char *name, struct sbx_object *ret)
{
	(void)sb;
	(void)dir;
	(void)name;
	(void)ret;
	return -EOPNOTSUPP;
}

static int entries(struct sbx_sandbox *sb, const char *dir,
                   int (*fn)(const char *name, const struct sbx_object *o, void *data), void *data)
{
	(void)sb;
	(void)dir;
	(void)fn;
	(void)data;
	return -EOPNOTSUPP;
}

static int content(struct sbx_sandbox *sb, const char *id, int fd)
{
	(void)sb;
	(void)id;
	(void)fd;
	return -EOPNOTSUPP;
}

const struct sbx_history_impl remote_history = {.snapshot = snapshot,
                                                .forget = forget,
                                                .list = list,
                                                .restore = restore,
                                                .diff = diff,
                                                .tree = tree,
                                                .entry = entry,
                                                .entries = entries,
                                                .content = content};
