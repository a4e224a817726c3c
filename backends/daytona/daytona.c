/* The provider: its settings, and its table. */
#include "backends/daytona/daytona.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/secret.h"

#define ASK_MS    30000
#define PAUSE_MS  100
#define IMAGE_MAX 400
#define KEY_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

static void info(struct sbx_provider *p, struct json_object *obj)
{
	const struct sbx_daytona_config *c = &daytona_of(p)->config;

	daytona_add(obj, "url", c->api_url);
	daytona_add(obj, "target", c->target);
	daytona_add(obj, c->image ? "image" : "snapshot", c->image ? c->image : c->snapshot);
	json_object_object_add(obj, "ephemeral", json_object_new_boolean(!c->kept));
	json_object_object_add(obj, "simple_exec", json_object_new_boolean(c->simple_exec));
}

static void destroy(struct sbx_provider *p)
{
	struct daytona *d = daytona_of(p);
	const char *const strings[] = {d->config.api_url,     d->config.github_api,
	                               d->config.target,      d->config.organization,
	                               d->config.snapshot,    d->config.image,
	                               d->organization_header};

	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++)
		free((char *)strings[i]);
	daytona_net_release(&d->net);
	free(d);
}

/* What a script starts with streams of its own goes on after the answer of execute. */
static const struct sbx_provider_impl impl = {
        .name = "daytona",
        .can = SBX_PROVIDER_DETACHES | SBX_PROVIDER_PARALLEL | SBX_PROVIDER_BLOCKS_NETWORK |
               SBX_PROVIDER_FILTERS_HOSTS,
        .make = daytona_make,
        .adopt = daytona_adopt,
        .release = daytona_release,
        .look = daytona_look,
        .unmake = daytona_unmake,
        .find = daytona_find,
        .touch = daytona_touch,
        .run = daytona_run,
        .cancel_run = daytona_cancel_run,
        .put = daytona_put,
        .cancel_put = daytona_cancel_put,
        .info = info,
        .destroy = destroy,
};

/* ---- settings ---- */

static int check_env(const struct sbx_daytona_config *c, struct sbx_error *err)
{
	for (char *const *at = c->env; at && *at; at++) {
		const size_t n = strcspn(*at, "="), good = strspn(*at, KEY_BYTES);

		if (!n || good != n || !(*at)[n] || isdigit((unsigned char)**at) ||
		    n > DAYTONA_KEY_MAX)
			return sbx_fail(err, EINVAL,
			                "Invalid env key \"%.*s\" \u2014 must match "
			                "[A-Za-z_][A-Za-z0-9_]*",
			                (int)(n < 100 ? n : 100), *at);
	}
	return 0;
}

static int check(const struct sbx_daytona_config *c, struct sbx_error *err)
{
	if (!c->key)
		return sbx_fail(err, EACCES,
		                "Daytona API key required (set DAYTONA_API_KEY or pass "
		                "opts.daytona.apiKey)");
	if (c->api_url && strncasecmp(c->api_url, "https://", 8) != 0 &&
	    strncasecmp(c->api_url, "http://", 7) != 0)
		return sbx_fail(err, EINVAL, "DAYTONA_API_URL is no https URL");
	if (c->image && c->snapshot)
		return sbx_fail(err, EINVAL,
		                "a sandbox is made from a snapshot or from an image, "
		                "not from both");
	if (!c->image && (c->cpus || c->memory_gb || c->disk_gb))
		return sbx_fail(err, EINVAL,
		                "Daytona takes a number of processors, memory and disk "
		                "for an image only: a snapshot has its own");
	if (c->image && (strpbrk(c->image, " \t\r\n") || strlen(c->image) > IMAGE_MAX))
		return sbx_fail(err, EINVAL, "the name of the image has a blank, or is too long");
	return check_env(c, err);
}

/* TEXT NULL: OTHER, which may be NULL. False: no memory. */
static bool copy(const char **to, const char *text, const char *other)
{
	if (!text)
		text = other;
	*to = text ? strdup(text) : NULL;
	return !text || *to;
}

static bool copy_strings(struct sbx_daytona_config *to, const struct sbx_daytona_config *from)
{
	*to = *from;
	to->net = NULL;
	to->ask_ms = from->ask_ms ? from->ask_ms : ASK_MS;
	to->pause_ms = from->pause_ms ? from->pause_ms : PAUSE_MS;
	to->api_url = to->github_api = to->target = to->organization = NULL;
	to->snapshot = to->image = NULL;
	return copy(&to->api_url, from->api_url, SBX_DAYTONA_API) &&
	       copy(&to->github_api, from->github_api, SBX_GITHUB_API) &&
	       copy(&to->target, from->target, NULL) &&
	       copy(&to->organization, from->organization, NULL) &&
	       copy(&to->snapshot, from->snapshot, from->image ? NULL : SBX_DAYTONA_SNAPSHOT) &&
	       copy(&to->image, from->image, NULL);
}

/* A key of Daytona's belongs to one organization; a JWT to a user, who may be in several. */
static bool is_jwt(const struct sbx_secret *key)
{
	const char *dot = strchr(sbx_secret_text(key), '.');

	return dot && strchr(dot + 1, '.');
}

static int set_headers(struct daytona *d)
{
	const char **at = d->headers;

	*at++ = "Content-Type: application/json";
	*at++ = "Accept: application/json";
	/* From 0.167 on the toolbox has streams apart; behind 0.205 nobody has looked. */
	*at++ = "X-Daytona-SDK-Version: 0.205.1";
	*at++ = "X-Daytona-Source: sandboxfs";
	*at = NULL;
	if (!d->config.organization || !is_jwt(d->config.key))
		return 0;
	if (asprintf(&d->organization_header, "X-Daytona-Organization-ID: %s",
	             d->config.organization) < 0) {
		d->organization_header = NULL;
		return -ENOMEM;
	}
	*at = d->organization_header;
	return 0;
}

static void trim_slashes(const char *url)
{
	char *text = (char *)url;
	size_t n = strlen(text);

	while (n && text[n - 1] == '/')
		text[--n] = '\0';
}

int sbx_daytona_provider(const struct sbx_daytona_config *config, struct sbx_provider **ret,
                         struct sbx_error *err)
{
	int r = check(config, err);
	struct daytona *d = r ? NULL : calloc(1, sizeof(*d));

	if (!d)
		return r ? r : sbx_no_memory(err);
	d->impl = impl;
	d->impl.can |= config->kept ? SBX_PROVIDER_SLEEPS : SBX_PROVIDER_EPHEMERAL;
	if (config->simple_exec) {
		d->impl.can &= ~SBX_PROVIDER_DETACHES;
		d->impl.can |= SBX_PROVIDER_MERGES;
	}
	d->impl.idle_ms = config->idle_min * UINT64_C(60000);
	d->base.impl = &d->impl;
	if (!copy_strings(&d->config, config) || set_headers(d) < 0)
		r = sbx_no_memory(err);
	else
		r = daytona_net_parse(config->net, &d->net, err);
	if (r) {
		destroy(&d->base);
		return r;
	}
	trim_slashes(d->config.api_url);
	*ret = &d->base;
	return 0;
}

int sbx_daytona_check_source(const char *source, const char *github_api, struct sbx_error *err)
{
	struct daytona_source parsed;
	int r = daytona_source_parse(source, github_api ? github_api : SBX_GITHUB_API, &parsed,
	                             err);

	daytona_source_release(&parsed);
	return r;
}
