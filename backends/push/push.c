/*
 * The daemon's side of a push: what is asked of sandboxfs-push, and how long it is waited for. What
 * it does with the source is done here, as it may be killed at any time.
 */
#include "backends/push/push.h"

#include <errno.h>
#include <git2.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/git/import_objects.h"
#include "backends/push/protocol.h"
#include "backends/push/remote.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/github.h"
#include "sandboxfs/scrub.h"

#define LOOK_MS 100
#define END_MS  1000 /* for a push by path to leave the remote as it was */

struct push {
	const struct sbx_git_push *from;
	const struct sbx_push_options *options;
	uint64_t begun_ms;
	git_repository *repo;
	char *ref; /* refs/heads/BRANCH */
	pid_t pid; /* of the program; 0: not started */
	int sock;
	bool told; /* the result is there */
	git_oid oid;
};

/* ---- the program ---- */

static int start(struct push *p, struct sbx_error *err)
{
	const struct sbx_program program = {.name = PUSH_PROGRAM,
	                                    .does = "pushes",
	                                    .mountpoint = p->from->mountpoint,
	                                    .env = environ};
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return sbx_fail(err, errno, "socketpair: %s", strerror(errno));
	p->sock = pair[0];
	r = sbx_program_start(&program, pair[1], &p->pid, err);
	close(pair[1]);
	return r;
}

/* Whether it is to be waited for no longer. */
static int judge(const struct push *p, struct sbx_error *err)
{
	const struct sbx_push_options *options = p->options;

	if (options->cancelled && atomic_load(options->cancelled))
		return sbx_fail(err, EINTR, "it was given up");
	if (options->timeout_ms && sbx_now_ms() - p->begun_ms > options->timeout_ms)
		return sbx_fail(err, ETIMEDOUT, "it took longer than it may");
	return 0;
}

/* The program's next message, LEN bytes. */
static int receive(const struct push *p, void *ret, size_t len, struct sbx_error *err)
{
	struct pollfd ready = {.fd = p->sock, .events = POLLIN};
	ssize_t n;
	int r;

	while (poll(&ready, 1, LOOK_MS) <= 0) {
		r = judge(p, err);
		if (r)
			return r;
	}
	n = recv(p->sock, ret, len, 0);
	if (n <= 0)
		return sbx_fail(err, ESRCH, PUSH_PROGRAM " died");
	return n == (ssize_t)len ? 0 : sbx_fail(err, EPROTO, PUSH_PROGRAM " is of another build");
}

static int check_build(const struct push *p, struct sbx_error *err)
{
	struct push_hello hello = {0};
	int r = receive(p, &hello, sizeof(hello), err);

	if (r || memcmp(&hello, &push_hello, sizeof(hello)) == 0)
		return r;
	return sbx_fail(err, EPROTO,
	                PUSH_PROGRAM " is of another build: it is %.*s, sandboxfs is %s",
	                (int)sizeof(hello.version), hello.version, push_hello.version);
}

static int ask(struct push *p, const char *url, struct sbx_error *err)
{
	const struct sbx_push_options *options = p->options;
	const struct push_order order = {
	        .daemon = getpid(),
	        .from = *p->from,
	        .url = url,
	        .token = sbx_github_token_is_for(url, options->api) ? options->token : NULL};
	struct push_result result;
	int r = start(p, err);

	if (!r)
		r = check_build(p, err);
	if (r)
		return r;
	r = push_send_order(p->sock, &order);
	if (r)
		return sbx_fail(err, -r, PUSH_PROGRAM " cannot be told: %s", strerror(-r));
	r = receive(p, &result, sizeof(result), err);
	if (r)
		return r;
	p->told = true;
	p->oid = result.oid;
	return result.err.code ? sbx_fail(err, result.err.code, "%s", result.err.text) : 0;
}

/* It ends by itself when it has told its result. */
static void end(struct push *p)
{
	_cleanup_fd_ int fd = p->pid ? (int)syscall(SYS_pidfd_open, p->pid, 0) : -1;
	struct pollfd ended = {.fd = fd, .events = POLLIN};

	if (p->pid && !p->told)
		kill(p->pid, SIGTERM);
	if (p->pid && poll(&ended, 1, END_MS) <= 0)
		kill(p->pid, SIGKILL);
	while (p->pid && waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	sbx_cleanup_fd(&p->sock);
}

/* ---- the source ---- */

/* One fetch refspec of the remote: where it puts the branch is where the branch is now. */
static int track(const git_config_entry *entry, void *data)
{
	const struct push *p = data;
	_cleanup_git_(refspec) git_refspec *spec = NULL;
	_cleanup_git_(reference) git_reference *ref = NULL;
	git_buf name = {0};

	if (git_refspec_parse(&spec, entry->value, 1) == 0 &&
	    git_refspec_src_matches(spec, p->ref) &&
	    git_refspec_transform(&name, spec, p->ref) == 0)
		git_reference_create(&ref, p->repo, name.ptr, &p->oid, 1, "update by push");
	git_buf_dispose(&name);
	return 0;
}

/* As git push leaves it. What does not succeed here is made good by the next fetch. */
static void track_all(struct push *p)
{
	const char *name = p->options->remote ? p->options->remote : "origin";
	_cleanup_free_ char *key = sbx_format("remote.%s.fetch", name);
	_cleanup_fd_ int lock = sbx_git_lock(p->from->common);
	struct sbx_git_owner owner = sbx_git_owner_begin(p->from->common);
	git_config *config = NULL;

	if (key && lock >= 0 && git_repository_config_snapshot(&config, p->repo) == 0)
		git_config_get_multivar_foreach(config, key, NULL, track, p);
	git_config_free(config);
	sbx_git_owner_end(&owner);
}

static int push(struct push *p, struct sbx_error *err)
{
	_cleanup_free_ char *url = NULL;
	int r = push_url(p->repo, p->from->common, p->options->remote, &url, err);

	if (r)
		return r;
	r = ask(p, url, err);
	end(p);
	if (!r && !git_oid_is_zero(&p->oid))
		track_all(p);
	return r;
}

int sbx_git_push(const struct sbx_git_push *from, const struct sbx_push_options *options,
                 struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_free_ char *ref = sbx_format("refs/heads/%s", from->branch);
	struct sbx_error own = SBX_ERROR_INIT;
	int r = git_repository_open_bare(&repo, from->common);
	struct push p = {.from = from,
	                 .options = options,
	                 .begun_ms = sbx_now_ms(),
	                 .repo = repo,
	                 .ref = ref,
	                 .sock = -1};

	if (r)
		r = sbx_git_fail(&own, r, "the source cannot be opened");
	else
		r = ref ? push(&p, &own) : sbx_no_memory(&own);
	if (r && err) {
		sbx_scrub(own.text, options->token);
		*err = own;
	}
	return r;
}
