/*
 * libgit2's callbacks during a push. Credentials are given once, because libgit2 asks again when
 * they are refused, for as long as it gets some. They are for the remote's own scheme, host and
 * port. libgit2 1.5 follows redirects although it is told not to, so the URL is checked each time
 * it asks.
 */
#include "backends/push/upload.h"

#include <errno.h>
#include <git2.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/git/durable.h"
#include "backends/push/remote.h"
#include "backends/push/watch.h"
#include "backends/support/fsutil.h"

SBX_GIT_CLEANUP(remote, git_remote, git_remote_free)

#define SAID_MAX 400 /* of what the server's hooks print, the last bytes */

struct push {
	const struct push_order *order;
	git_repository *repo;
	char *ref;           /* refs/heads/BRANCH */
	const char *url;     /* of the remote */
	bool http;           /* it is asked by HTTP(S) */
	bool tried;          /* credentials were given */
	const char *refused; /* why they were not taken, or there are none; else NULL */
	bool rejected;       /* the server did not move the ref */
	char status[256];    /* why */
	char said[SAID_MAX + 1];
	git_oid oid; /* what the ref is to be; zero: not known yet */
};

static int refuse(struct push *p, const char *text)
{
	p->refused = text;
	git_error_set_str(GIT_ERROR_NET, text);
	return GIT_EAUTH;
}

/* Whom a URL asks; parts of its text. */
struct origin {
	size_t scheme; /* length */
	const char *host, *port;
	size_t host_len, port_len;
};

/* PORT is empty where the scheme decides. False when it is no URL with a host. */
static bool origin_of(const char *url, struct origin *ret)
{
	const char *scheme = strstr(url, "://"), *host = scheme ? scheme + 3 : url, *end, *at;

	if (!scheme)
		return false;
	end = host + strcspn(host, "/?#");
	at = memrchr(host, '@', (size_t)(end - host));
	host = at ? at + 1 : host;
	at = *host == '[' ? memchr(host, ']', (size_t)(end - host)) : host;
	at = at ? memchr(at, ':', (size_t)(end - at)) : NULL;
	*ret = (struct origin){.scheme = (size_t)(scheme - url),
	                       .host = host,
	                       .host_len = (size_t)((at ? at : end) - host),
	                       .port = at ? at + 1 : "",
	                       .port_len = at ? (size_t)(end - at - 1) : 0};
	return true;
}

static bool is_default_port(const struct origin *o)
{
	const char *port = o->scheme == strlen("https") ? "443" : "80";

	return !o->port_len ||
	       (o->port_len == strlen(port) && strncmp(o->port, port, o->port_len) == 0);
}

/*
 * libgit2 follows a redirect to another port or scheme of the host, and then asks for credentials
 * for that.
 */
static bool is_own(const char *own, const char *url)
{
	struct origin a, b;

	if (!url || !origin_of(own, &a) || !origin_of(url, &b))
		return false;
	return a.scheme == b.scheme && strncasecmp(own, url, a.scheme) == 0 &&
	       a.host_len == b.host_len && strncasecmp(a.host, b.host, a.host_len) == 0 &&
	       ((is_default_port(&a) && is_default_port(&b)) ||
	        (a.port_len == b.port_len && strncmp(a.port, b.port, a.port_len) == 0));
}

static int give_credentials(git_credential **ret, const char *url, const char *user, unsigned types,
                            void *data)
{
	struct push *p = data;

	if (p->http && !is_own(p->url, url))
		return refuse(p, "the server leads to another one, which gets no GITHUB_TOKEN");
	user = user && *user ? user : "git";
	if (types & GIT_CREDENTIAL_USERNAME)
		return git_credential_username_new(ret, user);
	if (p->tried)
		return refuse(p, p->http ? "the server refused GITHUB_TOKEN"
		                         : "the server refused the keys of the SSH agent");
	if (p->http && !p->order->token)
		return refuse(p,
		              "the server wants to know who pushes, and is none of those that get "
		              "GITHUB_TOKEN");
	p->tried = true;
	if (p->http && types & GIT_CREDENTIAL_USERPASS_PLAINTEXT)
		return git_credential_userpass_plaintext_new(ret, "git", p->order->token);
	if (!p->http && types & GIT_CREDENTIAL_SSH_KEY)
		return git_credential_ssh_key_from_agent(ret, user);
	return refuse(p, "the server wants credentials of another kind");
}

static int go_on(void)
{
	push_watch_moved();
	return push_is_given_up() ? GIT_EUSER : 0;
}

static int pack_progress(int stage, uint32_t current, uint32_t total, void *data)
{
	(void)stage;
	(void)current;
	(void)total;
	(void)data;
	return go_on();
}

static int transfer_progress(unsigned current, unsigned total, size_t bytes, void *data)
{
	(void)current;
	(void)total;
	(void)bytes;
	(void)data;
	return go_on();
}

/* Keeps the end of what hooks and server print: the reason comes last. */
static int hear(const char *text, int len, void *data)
{
	struct push *p = data;
	const size_t n = len < 0 ? 0 : len > SAID_MAX ? SAID_MAX : (size_t)len;
	size_t had = strlen(p->said);

	if (had + n > SAID_MAX) {
		const size_t over = had + n - SAID_MAX;

		memmove(p->said, p->said + over, had - over + 1);
		had -= over;
	}
	memcpy(p->said + had, text + (len - (int)n), n);
	p->said[had + n] = '\0';
	return go_on();
}

static int learn_oid(const git_push_update **updates, size_t n, void *data)
{
	struct push *p = data;

	if (n == 1)
		p->oid = updates[0]->dst;
	return go_on();
}

static int take_status(const char *ref, const char *status, void *data)
{
	struct push *p = data;

	if (status && strcmp(ref, p->ref) == 0) {
		p->rejected = true;
		snprintf(p->status, sizeof(p->status), "%s", status);
	}
	return 0;
}

/* Lines become one; runs of white space one blank. */
static void join_lines(char *text)
{
	char *to = text;

	for (const char *c = text; *c; c++)
		if (!strchr(" \t\r\n", *c))
			*to++ = *c;
		else if (to > text && to[-1] != ' ')
			*to++ = ' ';
	while (to > text && to[-1] == ' ')
		to--;
	*to = '\0';
}

static int tell_rejected(struct push *p, struct sbx_error *err)
{
	join_lines(p->said);
	return sbx_fail(err, EPERM, "the server refused %s: %s%s%s%s", p->order->from.branch,
	                p->status, *p->said ? " (" : "", p->said, *p->said ? ")" : "");
}

/*
 * Puts libgit2's error on a connection into our words: it names libgit2's own calls, and ends
 * with the reason.
 */
static void call_it_ours(void)
{
	static const struct {
		const char *said, *ours;
	} words[] = {
	        {"failed to resolve address for ", "the server's name leads nowhere"},
	        {"failed to connect to ", "the server cannot be reached"},
	        {"error receiving socket data", "the connection broke"},
	        {"error sending data", "the connection broke"},
	};
	const git_error *last = sbx_git_said();
	const char *reason = last ? strstr(last->message, ": ") : NULL;
	_cleanup_free_ char *text = NULL;

	for (size_t i = 0; reason && !text && i < SBX_ARRAY_SIZE(words); i++)
		if (strncmp(last->message, words[i].said, strlen(words[i].said)) == 0)
			text = sbx_format("%s%s", words[i].ours, reason);
	if (text)
		git_error_set_str(last->klass, text);
}

static int tell_failure(struct push *p, int code, struct sbx_error *err)
{
	if (p->refused)
		return sbx_fail(err, EACCES, "%s", p->refused);
	if (code == GIT_ENONFASTFORWARD)
		return sbx_fail(err, EEXIST,
		                "%s of the remote has commits that %s here does not contain "
		                "(not a fast-forward)",
		                p->order->from.branch, p->order->from.branch);
	call_it_ours();
	return sbx_git_fail(err, code, "%s", p->order->from.branch);
}

static int upload(struct push *p, git_remote *remote, struct sbx_error *err)
{
	_cleanup_free_ char *spec = sbx_format("%s:%s", p->ref, p->ref);
	const git_strarray specs = {.strings = &spec, .count = 1};
	git_push_options opts;
	int r;

	if (!spec)
		return sbx_no_memory(err);
	git_push_options_init(&opts, GIT_PUSH_OPTIONS_VERSION);
	opts.follow_redirects = GIT_REMOTE_REDIRECT_NONE;
	opts.proxy_opts.type = GIT_PROXY_AUTO;
	opts.callbacks.credentials = give_credentials;
	opts.callbacks.pack_progress = pack_progress;
	opts.callbacks.push_transfer_progress = transfer_progress;
	opts.callbacks.sideband_progress = hear;
	opts.callbacks.push_negotiation = learn_oid;
	opts.callbacks.push_update_reference = take_status;
	opts.callbacks.payload = p;
	r = git_remote_upload(remote, &specs, &opts);
	if (r && !p->rejected)
		r = tell_failure(p, r, err);
	else if (p->rejected)
		r = tell_rejected(p, err);
	git_remote_disconnect(remote);
	return r;
}

static int push_to(struct push *p, struct sbx_error *err)
{
	git_remote_create_options opts = GIT_REMOTE_CREATE_OPTIONS_INIT;
	_cleanup_git_(remote) git_remote *remote = NULL;
	int r = push_check_path(&p->order->from, p->url, err);

	if (r)
		return r;
	opts.repository = p->repo;
	opts.flags = GIT_REMOTE_CREATE_SKIP_INSTEADOF | GIT_REMOTE_CREATE_SKIP_DEFAULT_FETCHSPEC;
	r = git_remote_create_with_opts(&remote, p->url, &opts);
	return r ? sbx_git_fail(err, r, "the remote") : upload(p, remote, err);
}

void push_upload(const struct push_order *order, struct push_result *ret)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_free_ char *ref = sbx_format("refs/heads/%s", order->from.branch);
	const char *url = order->url;
	struct push p = {.order = order,
	                 .ref = ref,
	                 .url = url,
	                 .http = strncmp(url, "http://", 7) == 0 ||
	                         strncmp(url, "https://", 8) == 0};
	int r = git_repository_open_bare(&repo, order->from.common);

	p.repo = repo;
	if (r) {
		sbx_git_fail(&ret->err, r, "the source cannot be opened");
	} else if (!ref) {
		sbx_no_memory(&ret->err);
	} else {
		sbx_git_durable_as(repo);
		push_to(&p, &ret->err);
		ret->oid = p.oid;
	}
}
