/*
 * Dagger as a provider of machines (backends/remote/provider.h). Its engine knows no sandbox, only
 * containers that never change, each with an id: a machine is the newest of them, and whatever is
 * done in it makes another one.
 */
#ifndef SANDBOXFS_BACKENDS_DAGGER_DAGGER_H
#define SANDBOXFS_BACKENDS_DAGGER_DAGGER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "backends/remote/provider.h"

struct sbx_loop;
struct sbx_secret;

/* Strings are copied; what is pointed to above them outlives the provider. */
struct sbx_dagger_config {
	struct sbx_http *http;
	struct sbx_loop *loop;
	const struct sbx_secret *token;     /* DAGGER_SESSION_TOKEN; NULL: none */
	const struct sbx_secret *git_token; /* GITHUB_TOKEN; NULL: none */
	const char *port;       /* DAGGER_SESSION_PORT; NULL: `dagger session` is started */
	const char *program;    /* NULL: SBX_DAGGER_PROGRAM, in PATH */
	const char *state_dir;  /* of the mount */
	const char *image;      /* as sbx_dagger_check_image; NULL: SBX_DAGGER_IMAGE */
	const char *github_api; /* NULL: GitHub's own */
	uint64_t start_ms;      /* until a session has begun; 0: SBX_DAGGER_START_MS */
	unsigned layers_max;    /* of a container, above its first ones; 0: SBX_DAGGER_LAYERS_MAX */
};
#define SBX_DAGGER_PROGRAM  "dagger"
#define SBX_DAGGER_IMAGE    "docker.io/library/buildpack-deps:bookworm-scm"
#define SBX_DAGGER_START_MS (UINT64_C(5) * 60 * 1000)
/* An engine mounts about 440, of which an image may have a hundred, and a run adds several. */
#define SBX_DAGGER_LAYERS_MAX 200

/* EACCES: a port without a token. EINVAL: a port or image that is none. */
int sbx_dagger_check_config(const struct sbx_dagger_config *config, struct sbx_error *err);
/* EINVAL, EILSEQ: SOURCE (NULL: none) is no repository or directory that can be brought to an
 * engine. GITHUB_API NULL: GitHub's own. */
int sbx_dagger_check_source(const char *source, const char *github_api, struct sbx_error *err);
/* As sbx_dagger_check_config. */
int sbx_dagger_provider(const struct sbx_dagger_config *config, struct sbx_provider **ret,
                        struct sbx_error *err);
/* As sbx_backend_open(). Not thread-safe: it looks at the environment. */
int sbx_dagger_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);
/* As sbx_backend_check(). ENOENT: nothing can start a session. */
int sbx_dagger_check(const struct sbx_host *host, struct sbx_error *err);
/* Names for sbx_backend_secrets(). */
extern const char *const sbx_dagger_secrets[];

/*
 * The place that a container is made from: a name in a registry, or one of
 *   dockerfile:DIR   what DIR/Dockerfile builds
 *   rootfs:DIR       the files in DIR, as root's
 *   archive:FILE     an OCI or docker archive
 * with absolute paths. EINVAL: it is none.
 */
int sbx_dagger_check_image(const char *image, struct sbx_error *err);

/*
 * [wait] Writes what the directory PATH of M holds into the directory TO of this host (absolute),
 * which is made where it is missing. WIPE: what TO has besides is removed. ENOENT, ENOTDIR: of
 * PATH.
 */
int sbx_dagger_export(struct sbx_machine *m, const char *path, const char *to, bool wipe,
                      atomic_bool *cancelled, struct sbx_error *err);

#endif
