#include "fs/github/api.h"

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
#include "sandboxfs/http.h"

#define ANSWER_MS 30000

/* The default branch of a repository, asked for before. */
struct known {
	struct known *next;
	struct sbx_github_repo repo;
	char branch[];
};

struct sbx_github {
	struct sbx_http *http;
	char *api;
	const struct sbx_secret *token;
	pthread_mutex_t lock; /* known */
	struct known *known;
};

static bool is_web(const char *url)
{
	return strncasecmp(url, "https://", 8) == 0 || strncasecmp(url, "http://", 7) == 0;
}

int sbx_github_create(struct sbx_http *http, const char *api, const struct sbx_secret *token,
                      struct sbx_github **ret, struct sbx_error *err)
{
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
	gh->http = http;
	gh->token = token;
	pthread_mutex_init(&gh->lock, NULL);
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

/* BODY NULL: GET. A refusal is a failure; else answer->body is the caller's. */
static int ask(struct sbx_github *gh, const struct sbx_github_repo *repo, const char *what,
               const char *body, atomic_bool *cancelled, struct sbx_http_answer *answer,
               struct sbx_error *err)
{
	static const char *const headers[] = {"Accept: application/vnd.github+json",
	                                      "X-GitHub-Api-Version: 2022-11-28",
	                                      "Content-Type: application/json", NULL};
	_cleanup_free_ char *url = NULL;
	struct sbx_http_request req = {
	        .op = body ? "github_pull" : "github_repo",
	        .method = body ? "POST" : "GET",
	        .peer = "GitHub's API",
	        .headers = headers,
	        .secret = gh->token,
	        .body = {.data = body, .size = body ? strlen(body) : 0},
	        .deadline_ms = ANSWER_MS,
	        .repeat = body ? SBX_HTTP_UNSENT : SBX_HTTP_SAFE,
	        .plain = true, /* whoever names such an API wants it so */
	};
	int r;

	if (asprintf(&url, "%s/repos/%s/%s%s", gh->api, repo->owner, repo->name, what) < 0) {
		url = NULL;
		return sbx_no_memory(err);
	}
	req.url = url;
	r = sbx_http_perform(gh->http, &req, cancelled, answer, err);
	if (!answer->status || sbx_http_errno(answer->status) == 0)
		return r;
	return sbx_github_refusal(answer->status, answer->body ? answer->body : "", answer->len,
	                          err);
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
	struct sbx_http_answer a = {0};
	int r;

	*ret = recall(gh, repo);
	if (*ret)
		return 0;
	r = ask(gh, repo, "", NULL, cancelled, &a, err);
	if (!r)
		r = sbx_github_member(a.body ? a.body : "", a.len, "default_branch", ret, err);
	sbx_http_answer_release(&a);
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
	struct sbx_http_answer a = {0};
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
	sbx_http_answer_release(&a);
	if (r && err)
		*err = own;
	return r;
}
