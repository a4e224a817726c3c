/* The provider: its settings, and its table. */
#include "backends/vercel/vercel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/support/escape.h"
#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/github.h"
#include "sandboxfs/pool.h"

#define PACKERS   8 /* at once */
#define DAY_MS    UINT64_C(86400000)
#define ASK_MS    30000
#define PAUSE_MS  250
#define STREAM_MS 55000
#define PORT_LOW  1024
#define PORTS     15

static void info(struct sbx_provider *p, struct json_object *obj)
{
	const struct vercel *v = vercel_of(p);
	const struct sbx_vercel_config *c = &v->config;

	sbx_member_add(obj, "url", c->api_url);
	sbx_member_add(obj, "team", v->token.team);
	sbx_member_add(obj, "project", v->token.project);
	sbx_member_add(obj, "token", v->token.variable);
	if (v->token.expires_s)
		json_object_object_add(obj, "token_expires",
		                       json_object_new_int64(v->token.expires_s * 1000));
	sbx_member_add(obj, c->image ? "image" : "runtime", c->image ? c->image : c->runtime);
	sbx_member_add(obj, "region", c->region);
	json_object_object_add(obj, "sudo", json_object_new_boolean(c->sudo));
	json_object_object_add(obj, "ephemeral", json_object_new_boolean(c->ephemeral));
}

static void destroy(struct sbx_provider *p)
{
	struct vercel *v = vercel_of(p);
	const char *const strings[] = {v->config.api_url, v->config.github_api, v->config.runtime,
	                               v->config.image,   v->config.region,     v->config.spool,
	                               v->query,          v->project,           v->wake_query};

	sbx_pool_destroy(v->pool);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(strings); i++)
		free((char *)strings[i]);
	vercel_net_release(&v->net);
	sbx_strings_release(&v->env);
	sbx_strings_release(&v->ports);
	free(v);
}

/* What a script starts in the background goes on after it, as long as the session does. */
static const struct sbx_provider_impl impl = {
        .name = "vercel",
        .can = SBX_PROVIDER_DETACHES | SBX_PROVIDER_PARALLEL | SBX_PROVIDER_BLOCKS_NETWORK |
               SBX_PROVIDER_FILTERS_HOSTS | SBX_PROVIDER_CONTINUES | SBX_PROVIDER_COPY_ENDS,
        .make = vercel_make,
        .copy = vercel_copy,
        .adopt = vercel_adopt,
        .release = vercel_release,
        .look = vercel_look,
        .unmake = vercel_unmake,
        .find = vercel_find,
        .touch = vercel_touch,
        .run = vercel_run,
        .cancel_run = vercel_cancel_run,
        .put = vercel_put,
        .cancel_put = vercel_cancel_put,
        .info = info,
        .destroy = destroy,
};

/* ---- settings ---- */

/* http is for this machine alone: the token would be shown. */
static int check_url(const char *url, struct sbx_error *err)
{
	char host[64] = "";
	struct in_addr a;

	if (!url || strncasecmp(url, "https://", 8) == 0)
		return 0;
	if (strncasecmp(url, "http://", 7) != 0)
		return sbx_fail(err, EINVAL, "VERCEL_API_URL is no https URL");
	snprintf(host, sizeof(host), "%.*s", (int)strcspn(url + 7, ":/?#"), url + 7);
	if (strcasecmp(host, "localhost") == 0 ||
	    (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127))
		return 0;
	return sbx_fail(err, EINVAL, "VERCEL_API_URL is to be asked without encryption");
}

static int check_ports(const struct sbx_strings *ports, struct sbx_error *err)
{
	if (ports && ports->n > PORTS)
		return sbx_fail(err, EINVAL, "Vercel shows %d ports at most", PORTS);
	for (size_t i = 0; ports && i < ports->n; i++) {
		const char *text = ports->items[i];
		const size_t n = strlen(text);

		if (!n || n > 5 || strspn(text, "0123456789") != n || atoi(text) < PORT_LOW ||
		    atoi(text) > UINT16_MAX)
			return sbx_fail(err, EINVAL, "a port is a number from %d to %d", PORT_LOW,
			                UINT16_MAX);
	}
	return 0;
}

static int check(const struct sbx_vercel_config *c, struct sbx_error *err)
{
	int r = check_url(c->api_url, err);

	if (!r && c->image && c->runtime)
		r = sbx_fail(err, EINVAL,
		             "a sandbox is made from an image or with a runtime, not with both");
	if (!r && c->vcpus > 1 && (c->vcpus % 2 || c->vcpus > 32))
		r = sbx_fail(err, EINVAL, "Vercel takes 1 vcpu, or an even number up to 32");
	if (!r && c->life_ms && (c->life_ms < 1000 || c->life_ms > DAY_MS))
		r = sbx_fail(err, EINVAL, "a sandbox of Vercel's lives for a second to a day");
	return r ? r : check_ports(c->ports, err);
}

/* TEXT NULL: OTHER, which may be NULL. False: no memory. */
static bool copy(const char **to, const char *text, const char *other)
{
	if (!text)
		text = other;
	*to = text ? strdup(text) : NULL;
	return !text || *to;
}

static bool copy_list(struct sbx_strings *to, const struct sbx_strings *from)
{
	for (size_t i = 0; from && i < from->n; i++)
		if (sbx_strings_add(to, from->items[i]) < 0)
			return false;
	return true;
}

static bool copy_config(struct vercel *v, const struct sbx_vercel_config *from)
{
	struct sbx_vercel_config *to = &v->config;

	*to = *from;
	to->env = to->ports = NULL;
	to->team = to->project = to->net = NULL;
	to->api_url = to->github_api = to->runtime = to->image = to->region = to->spool = NULL;
	to->pause_ms = from->pause_ms ? from->pause_ms : PAUSE_MS;
	to->ask_ms = from->ask_ms ? from->ask_ms : ASK_MS;
	to->stream_ms = from->stream_ms ? from->stream_ms : STREAM_MS;
	to->life_ms = from->life_ms ? from->life_ms : SBX_VERCEL_LIFE_MS;
	return copy(&to->api_url, from->api_url, SBX_VERCEL_API) &&
	       copy(&to->github_api, from->github_api, SBX_GITHUB_API) &&
	       copy(&to->runtime, from->runtime, from->image ? NULL : SBX_VERCEL_RUNTIME) &&
	       copy(&to->image, from->image, NULL) && copy(&to->region, from->region, NULL) &&
	       copy(&to->spool, from->spool, NULL) && copy_list(&v->env, from->env) &&
	       copy_list(&v->ports, from->ports);
}

static void trim_slashes(const char *url)
{
	char *text = (char *)url;
	size_t n = strlen(text);

	while (n && text[n - 1] == '/')
		text[--n] = '\0';
}

static int set_queries(struct vercel *v)
{
	_cleanup_free_ char *team = sbx_escape_percent(v->token.team, "");

	v->project = sbx_escape_percent(v->token.project, "");
	if (!team || !v->project)
		return -ENOMEM;
	v->query = sbx_format("teamId=%s", team);
	v->wake_query = sbx_format("&projectId=%s&resume=true", v->project);
	return v->query && v->wake_query ? 0 : -ENOMEM;
}

static int begin(struct vercel *v, const struct sbx_vercel_config *config, struct sbx_error *err)
{
	if (!copy_config(v, config) || set_queries(v) < 0 ||
	    sbx_pool_create_wide(PACKERS, false, &v->pool) < 0)
		return sbx_no_memory(err);
	trim_slashes(v->config.api_url);
	return vercel_net_parse(config->net, &v->net, err);
}

int sbx_vercel_provider(const struct sbx_vercel_config *config, struct sbx_provider **ret,
                        struct sbx_error *err)
{
	struct vercel_token token;
	struct vercel *v;
	int r = check(config, err);

	if (!r)
		r = vercel_token_choose(config, &token, err);
	if (r)
		return r;
	v = calloc(1, sizeof(*v));
	if (!v)
		return sbx_no_memory(err);
	v->token = token;
	v->impl = impl;
	v->impl.can |= config->ephemeral ? SBX_PROVIDER_EPHEMERAL : SBX_PROVIDER_SLEEPS;
	v->base.impl = &v->impl;
	r = begin(v, config, err);
	if (r) {
		destroy(&v->base);
		return r;
	}
	v->impl.idle_ms = v->config.life_ms;
	*ret = &v->base;
	return 0;
}

int sbx_vercel_check_source(const char *source, const char *github_api, struct sbx_error *err)
{
	struct vercel_source parsed;
	int r = vercel_source_parse(source, github_api ? github_api : SBX_GITHUB_API, &parsed, err);

	vercel_source_release(&parsed);
	return r;
}
