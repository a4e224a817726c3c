/*
 * One transfer per call, none kept: pull requests are opened seldom. Redirects are not followed, so
 * the token goes to the host of the API only.
 */
#include "fs/github/api.h"

#include <curl/curl.h>
#include <errno.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/scrub.h"
#include "sandboxfs/secret.h"

#define ANSWER_MAX (1024 * 1024) /* bytes */
#define CONNECT_MS 10000L
#define ANSWER_MS  30000L

/* The default branch of a repository, asked for before. */
struct known {
	struct known *next;
	struct sbx_github_repo repo;
	char branch[];
};

struct sbx_github {
	char *api;
	const struct sbx_secret *token;
	pthread_mutex_t lock; /* known */
	struct known *known;
};

struct answer {
	char *body;
	size_t len;
	long status;
};

static void init_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static bool is_web(const char *url)
{
	return strncasecmp(url, "https://", 8) == 0 || strncasecmp(url, "http://", 7) == 0;
}

int sbx_github_create(const char *api, const struct sbx_secret *token, struct sbx_github **ret,
                      struct sbx_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct sbx_github *gh;

	api = api && *api ? api : SBX_GITHUB_API;
	if (!is_web(api))
		return sbx_fail(err, EINVAL, "GITHUB_API_URL is no http or https URL");
	gh = calloc(1, sizeof(*gh));
	if (gh)
		gh->api = strdup(api);
	if (!gh || !gh->api) {
		free(gh);
		return sbx_no_memory(err);
	}
	while (*gh->api && gh->api[strlen(gh->api) - 1] == '/')
		gh->api[strlen(gh->api) - 1] = '\0';
	gh->token = token;
	pthread_mutex_init(&gh->lock, NULL);
	pthread_once(&once, init_curl);
	*ret = gh;
	return 0;
}

void sbx_github_destroy(struct sbx_github *gh)
{
	struct known *next;

	if (!gh)
		return;
	for (struct known *k = gh->known; k; k = next) {
		next = k->next;
		free(k);
	}
	pthread_mutex_destroy(&gh->lock);
	free(gh->api);
	free(gh);
}

const char *sbx_github_api(const struct sbx_github *gh)
{
	return gh->api;
}

/* ---- one request ---- */

static size_t take_body(char *data, size_t size, size_t n, void *arg)
{
	struct answer *a = arg;

	n *= size;
	return sbx_text_append(&a->body, &a->len, data, n, ANSWER_MAX) ? 0 : n;
}

static int look_up(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	atomic_bool *cancelled = arg;

	(void)a;
	(void)b;
	(void)c;
	(void)d;
	return cancelled && atomic_load(cancelled);
}

static int tell_failure(CURLcode code, struct sbx_error *err)
{
	switch (code) {
	case CURLE_ABORTED_BY_CALLBACK:
		return sbx_fail(err, EINTR, "it was given up");
	case CURLE_OPERATION_TIMEDOUT:
		return sbx_fail(err, ETIMEDOUT, "GitHub's API does not answer");
	case CURLE_WRITE_ERROR:
		return sbx_fail(err, EMSGSIZE, "the answer of GitHub's API is too long");
	case CURLE_OUT_OF_MEMORY:
		return sbx_no_memory(err);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		return sbx_fail(err, EKEYREJECTED, "GitHub's API cannot prove who it is: %s",
		                curl_easy_strerror(code));
	default:
		return sbx_fail(err, ECONNREFUSED, "GitHub's API cannot be reached: %s",
		                curl_easy_strerror(code));
	}
}

static bool add_header(struct curl_slist **list, const char *line)
{
	struct curl_slist *longer = curl_slist_append(*list, line);

	if (longer)
		*list = longer;
	return longer != NULL;
}

static struct curl_slist *headers_of(const struct sbx_github *gh)
{
	struct curl_slist *list = NULL;
	char *authorization = NULL;
	bool good = asprintf(&authorization, "Authorization: Bearer %s",
	                     sbx_secret_text(gh->token)) >= 0;

	good = good && add_header(&list, authorization) &&
	       add_header(&list, "Accept: application/vnd.github+json") &&
	       add_header(&list, "X-GitHub-Api-Version: 2022-11-28") &&
	       add_header(&list, "Content-Type: application/json");
	if (authorization)
		explicit_bzero(authorization, strlen(authorization));
	free(authorization);
	if (good)
		return list;
	curl_slist_free_all(list);
	return NULL;
}

static void set_options(CURL *curl, const struct sbx_github *gh, const char *url, const char *body,
                        atomic_bool *cancelled, struct answer *a)
{
	const bool plain = strncasecmp(gh->api, "http://", 7) == 0;

	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, plain ? "http" : "https");
	curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ANSWER_MS);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "sandboxfs/" SBX_VERSION);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, a);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_up);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, cancelled);
	if (body)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
}

/* BODY NULL: GET. A refusal is a failure; else a->body is the caller's. */
static int ask(struct sbx_github *gh, const struct sbx_github_repo *repo, const char *what,
               const char *body, atomic_bool *cancelled, struct answer *a, struct sbx_error *err)
{
	_cleanup_free_ char *url = NULL;
	struct curl_slist *headers = headers_of(gh);
	CURL *curl = curl_easy_init();
	CURLcode code = CURLE_OUT_OF_MEMORY;

	if (asprintf(&url, "%s/repos/%s/%s%s", gh->api, repo->owner, repo->name, what) < 0)
		url = NULL;
	if (curl && headers && url) {
		set_options(curl, gh, url, body, cancelled, a);
		curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
		code = curl_easy_perform(curl);
		curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &a->status);
	}
	curl_easy_cleanup(curl);
	curl_slist_free_all(headers);
	if (code != CURLE_OK)
		return tell_failure(code, err);
	if (a->status < 200 || a->status > 299)
		return sbx_github_refusal(a->status, a->body ? a->body : "", a->len, err);
	return 0;
}

/* ---- the default branch ---- */

static bool same_repo(const struct sbx_github_repo *a, const struct sbx_github_repo *b)
{
	return strcasecmp(a->owner, b->owner) == 0 && strcasecmp(a->name, b->name) == 0;
}

static char *recall(struct sbx_github *gh, const struct sbx_github_repo *repo)
{
	char *branch = NULL;

	pthread_mutex_lock(&gh->lock);
	for (struct known *k = gh->known; k && !branch; k = k->next)
		if (same_repo(&k->repo, repo))
			branch = strdup(k->branch);
	pthread_mutex_unlock(&gh->lock);
	return branch;
}

static void remember(struct sbx_github *gh, const struct sbx_github_repo *repo, const char *branch)
{
	const size_t n = strlen(branch) + 1;
	struct known *k = malloc(sizeof(*k) + n);

	if (!k)
		return;
	k->repo = *repo;
	memcpy(k->branch, branch, n);
	pthread_mutex_lock(&gh->lock);
	k->next = gh->known;
	gh->known = k;
	pthread_mutex_unlock(&gh->lock);
}

/* It may have been renamed since. */
static void forget(struct sbx_github *gh, const struct sbx_github_repo *repo)
{
	pthread_mutex_lock(&gh->lock);
	for (struct known **at = &gh->known; *at;) {
		struct known *k = *at;

		if (same_repo(&k->repo, repo)) {
			*at = k->next;
			free(k);
		} else {
			at = &k->next;
		}
	}
	pthread_mutex_unlock(&gh->lock);
}

static int default_branch(struct sbx_github *gh, const struct sbx_github_repo *repo,
                          atomic_bool *cancelled, char **ret, struct sbx_error *err)
{
	struct answer a = {0};
	int r;

	*ret = recall(gh, repo);
	if (*ret)
		return 0;
	r = ask(gh, repo, "", NULL, cancelled, &a, err);
	if (!r)
		r = sbx_github_member(a.body ? a.body : "", a.len, "default_branch", ret, err);
	free(a.body);
	if (!r)
		remember(gh, repo, *ret);
	return r;
}

/* ---- the pull request ---- */

static char *pull_json(const struct sbx_github_pull *pull, const char *base)
{
	struct json_object *obj = json_object_new_object();
	char *text;

	json_object_object_add(obj, "title", sbx_text_json(pull->title, strlen(pull->title)));
	json_object_object_add(obj, "body", sbx_text_json(pull->body, strlen(pull->body)));
	json_object_object_add(obj, "head", sbx_text_json(pull->head, strlen(pull->head)));
	json_object_object_add(obj, "base", sbx_text_json(base, strlen(base)));
	text = strdup(json_object_to_json_string_ext(obj, JSON_C_TO_STRING_PLAIN |
	                                                          JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(obj);
	return text;
}

int sbx_github_pull(struct sbx_github *gh, const struct sbx_github_repo *repo,
                    const struct sbx_github_pull *pull, atomic_bool *cancelled, char **ret,
                    struct sbx_error *err)
{
	_cleanup_free_ char *base = NULL, *body = NULL;
	struct answer a = {0};
	struct sbx_error own = SBX_ERROR_INIT;
	int r = default_branch(gh, repo, cancelled, &base, &own);

	if (!r) {
		body = pull_json(pull, base);
		r = body ? ask(gh, repo, "/pulls", body, cancelled, &a, &own) : sbx_no_memory(&own);
		if (r == -EINVAL && strstr(own.text, "base"))
			forget(gh, repo);
	}
	if (!r)
		r = sbx_github_member(a.body ? a.body : "", a.len, "html_url", ret, &own);
	free(a.body);
	if (r && err) {
		sbx_scrub(own.text, sbx_secret_text(gh->token));
		*err = own;
	}
	return r;
}
