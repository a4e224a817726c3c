/*
 * Vercel Sandbox as a provider of machines (backends/remote/provider.h). A machine is a named
 * sandbox of a project; what runs is a session of it, which ends and is started anew.
 */
#ifndef SANDBOXFS_BACKENDS_VERCEL_VERCEL_H
#define SANDBOXFS_BACKENDS_VERCEL_VERCEL_H

#include <stdbool.h>

#include "backends/remote/provider.h"

struct sbx_loop;
struct sbx_secret;
struct sbx_strings;

#define SBX_VERCEL_API     "https://vercel.com/api"
#define SBX_VERCEL_RUNTIME "python3.13"
#define SBX_VERCEL_LIFE_MS UINT64_C(300000)

/* Strings are copied; what is pointed to above them outlives the provider. */
struct sbx_vercel_config {
	struct sbx_http *http;
	struct sbx_loop *loop;
	/* One of them is used, the first that is whole. NULL: it is not set. */
	const struct sbx_secret *token;     /* VERCEL_TOKEN; needs TEAM and PROJECT */
	const struct sbx_secret *oidc;      /* VERCEL_OIDC_TOKEN, which names both */
	const struct sbx_secret *git_token; /* GITHUB_TOKEN, or NULL */
	const struct sbx_strings *env;      /* KEY=VALUE, for every command; or NULL */
	const struct sbx_strings *ports;    /* that are reached from outside; or NULL */
	const char *team, *project;         /* or NULL */
	const char *api_url;                /* NULL: Vercel's own */
	const char *github_api;             /* NULL: GitHub's own */
	const char *runtime;                /* NULL: SBX_VERCEL_RUNTIME, unless there is an image */
	const char *image;                  /* or NULL */
	const char *region;                 /* NULL: Vercel's choice */
	const char *net;                    /* as sbx_settings.net; NULL: "none" */
	const char *spool;                  /* a directory for uploads; NULL: they are in memory */
	unsigned vcpus;                     /* 0: Vercel's default */
	uint64_t life_ms;   /* of a session that is not used; 0: SBX_VERCEL_LIFE_MS */
	uint64_t stream_ms; /* that the output of a command is listened to at once; 0: 55000 */
	uint64_t pause_ms;  /* the least before a change is looked at again; 0: 250 */
	uint64_t ask_ms;    /* until a request that does little has its answer; 0: 30000 */
	bool sudo;          /* scripts run as root */
	bool ephemeral;     /* a sandbox that has stopped is gone */
};

/*
 * EACCES: no token, or one without a team or project. EINVAL: a URL, a port, a number of vcpus, or
 * a runtime and an image at once. EOPNOTSUPP: a network that Vercel cannot enforce.
 */
int sbx_vercel_provider(const struct sbx_vercel_config *config, struct sbx_provider **ret,
                        struct sbx_error *err);
/* The same, by the settings and the environment of the daemon. EKEYREJECTED: the token has expired.
 */
int sbx_vercel_provider_of(const struct sbx_host *host, struct sbx_provider **ret,
                           struct sbx_error *err);
/* As sbx_backend_check(). */
int sbx_vercel_check(const struct sbx_host *host, struct sbx_error *err);
/* As sbx_backend_note(): until when the token holds. */
char *sbx_vercel_note(const struct sbx_host *host);
/* As sbx_backend_open(). */
int sbx_vercel_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);
/* The variables that hold its secrets, ended by NULL. */
extern const char *const sbx_vercel_secrets[];

/* EINVAL: SOURCE (NULL: none) cannot be cloned by Vercel. */
int sbx_vercel_check_source(const char *source, const char *github_api, struct sbx_error *err);

#endif
