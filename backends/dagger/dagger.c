/* The provider: its settings, its table, and its end. */
#include "backends/dagger/dagger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/git/repository.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/github.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/own_dir.h"
#include "sandboxfs/pool.h"

#define POOL_MOST 16

static void info(struct sbx_provider *p, struct json_object *obj)
{
	struct dagger *d = dagger_of(p);

	json_object_object_add(obj, "image", json_object_new_string(d->config.image));
	pthread_mutex_lock(&d->lock);
	if (d->session)
		json_object_object_add(obj, "version", json_object_new_string(d->session->version));
	pthread_mutex_unlock(&d->lock);
	json_object_object_add(obj, "session",
	                       json_object_new_string(d->config.port ? "given" : "own"));
}

/* ---- its end ---- */

static void provider_free(struct dagger *d)
{
	const char *const strings[] = {d->config.port, d->config.program, d->config.state_dir,
	                               d->config.image, d->config.github_api};

	sbx_pool_destroy(d->pool);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(strings); i++)
		free((char *)strings[i]);
	sbx_cleanup_fd(&d->dir);
	free(d->path);
	free(d->git_secret);
	pthread_mutex_destroy(&d->lock);
	pthread_mutex_destroy(&d->folders);
	sbx_git_shutdown();
	free(d);
}

void dagger_ref(struct dagger *d)
{
	pthread_mutex_lock(&d->lock);
	d->refs++;
	pthread_mutex_unlock(&d->lock);
}

void dagger_unref(struct dagger *d)
{
	bool last;

	pthread_mutex_lock(&d->lock);
	last = --d->refs == 0;
	pthread_mutex_unlock(&d->lock);
	if (last)
		provider_free(d);
}

/* [loop] */
static void leave(void *data)
{
	struct dagger *d = data;

	pthread_mutex_lock(&d->lock);
	d->leaving = true;
	dagger_session_unref(d->session);
	d->session = NULL;
	if (d->probe)
		dagger_query_cancel(d->probe);
	pthread_mutex_unlock(&d->lock);
	dagger_cli_end_all(d);
	dagger_unref(d);
}

/* Processes are watched by the loop, which forgets them before they are. */
static void destroy(struct sbx_provider *p)
{
	struct dagger *d = dagger_of(p);

	sbx_loop_post(d->config.loop, leave, d);
}

/* ---- the table ---- */

static const struct sbx_provider_impl impl = {
        .name = "dagger",
        .can = SBX_PROVIDER_CONTINUES | SBX_PROVIDER_RENUMBERS,
        .make = dagger_make,
        .copy = dagger_copy,
        .adopt = dagger_adopt,
        .release = dagger_release,
        .look = dagger_look,
        .unmake = dagger_unmake,
        .find = dagger_find_all,
        .touch = dagger_touch,
        .run = dagger_run,
        .cancel_run = dagger_cancel_run,
        .save = dagger_save,
        .keep = dagger_keep,
        .drop = dagger_drop,
        .back = dagger_back,
        .put = dagger_put,
        .cancel_put = dagger_cancel_put,
        .info = info,
        .destroy = destroy,
};

/* ---- settings ---- */

static bool is_port(const char *text)
{
	const size_t n = strspn(text, "0123456789");

	return n && n <= 5 && !text[n] && atoi(text) > 0 && atoi(text) < 65536;
}

int sbx_dagger_check_image(const char *image, struct sbx_error *err)
{
	static const char *const kinds[] = {"dockerfile:", "rootfs:", "archive:"};

	if (!*image || !dagger_is_utf8(image, strlen(image)))
		return sbx_fail(err, EINVAL, "the name of the image is none");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(kinds); i++) {
		const size_t n = strlen(kinds[i]);

		if (strncmp(image, kinds[i], n) == 0)
			return image[n] == '/' ? 0
			                       : sbx_fail(err, EINVAL,
			                                  "%s of the image wants an absolute path",
			                                  kinds[i]);
	}
	if (strpbrk(image, " \t\r\n"))
		return sbx_fail(err, EINVAL, "the name of the image has a blank");
	return 0;
}

int sbx_dagger_check_config(const struct sbx_dagger_config *c, struct sbx_error *err)
{
	if (c->port && !is_port(c->port))
		return sbx_fail(err, EINVAL, "DAGGER_SESSION_PORT is no port");
	if (c->port && !c->token)
		return sbx_fail(err, EACCES,
		                "DAGGER_SESSION_PORT is set, but DAGGER_SESSION_TOKEN is not");
	return c->image ? sbx_dagger_check_image(c->image, err) : 0;
}

/* TEXT NULL: OTHER, which may be NULL. False: no memory. */
static bool copy(const char **to, const char *text, const char *other)
{
	if (!text)
		text = other;
	*to = text ? strdup(text) : NULL;
	return !text || *to;
}

static bool copy_config(struct sbx_dagger_config *to, const struct sbx_dagger_config *from)
{
	*to = *from;
	if (!to->start_ms)
		to->start_ms = SBX_DAGGER_START_MS;
	to->port = to->program = to->state_dir = to->image = to->github_api = NULL;
	return copy(&to->port, from->port, NULL) &&
	       copy(&to->program, from->program, SBX_DAGGER_PROGRAM) &&
	       copy(&to->state_dir, from->state_dir, NULL) &&
	       copy(&to->image, from->image, SBX_DAGGER_IMAGE) &&
	       copy(&to->github_api, from->github_api, SBX_GITHUB_API);
}

/* What is asked with one is new to the engine, whoever asked before. */
static void set_nonce(char nonce[24])
{
	uint64_t some = 0;

	if (getrandom(&some, sizeof(some), 0) < 0)
		some = (uint64_t)getpid();
	snprintf(nonce, 24, "%016llx", (unsigned long long)some);
}

static int open_state(struct dagger *d, struct sbx_error *err)
{
	if (asprintf(&d->path, "%s/dagger", d->config.state_dir) < 0) {
		d->path = NULL;
		return sbx_no_memory(err);
	}
	d->dir = sbx_dir_own(d->path, "state", err);
	return d->dir < 0 ? d->dir : 0;
}

int sbx_dagger_provider(const struct sbx_dagger_config *config, struct sbx_provider **ret,
                        struct sbx_error *err)
{
	int r = sbx_dagger_check_config(config, err);
	struct dagger *d = r ? NULL : calloc(1, sizeof(*d));

	if (!d || sbx_git_init() < 0) {
		free(d);
		return r ? r : sbx_no_memory(err);
	}
	d->base.impl = &impl;
	d->refs = 1;
	d->dir = -1;
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->folders, NULL);
	set_nonce(d->nonce);
	r = copy_config(&d->config, config) ? open_state(d, err) : sbx_no_memory(err);
	if (!r && sbx_pool_create_wide(POOL_MOST, false, &d->pool) < 0)
		r = sbx_no_memory(err);
	if (r) {
		provider_free(d);
		return r;
	}
	*ret = &d->base;
	return 0;
}
