#include "fs/config/choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/config/options.h"
#include "fs/config/settings.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/secret.h"

#define SECRETS_MOST 8

/* In the order in which the one is weaker than the next. */
int sbx_choice_find(struct sbx_settings *settings, const char **why, struct sbx_error *err)
{
	_cleanup_free_ char *by_default = NULL;
	const char *variable = getenv("SANDBOXFS_BACKEND");
	int r;

	sbx_backend_default(why);
	if (sbx_settings_defaults(settings) < 0)
		return sbx_no_memory(err);
	by_default = strdup(settings->backend);
	if (!by_default)
		return sbx_no_memory(err);
	r = sbx_settings_found(settings, err);
	if (!r && strcmp(settings->backend, by_default) != 0)
		*why = "because the configuration file names it";
	if (variable && *variable)
		*why = "because SANDBOXFS_BACKEND names it";
	return r ? r : sbx_settings_environment(settings, err);
}

struct taken {
	const char *const *names;
	struct sbx_secret *secrets[SECRETS_MOST];
};

/* As sbx_host.secret. */
static const struct sbx_secret *find(const char *name, void *data)
{
	const struct taken *t = data;

	for (size_t i = 0; i < SECRETS_MOST && t->names[i]; i++)
		if (strcmp(t->names[i], name) == 0)
			return t->secrets[i];
	return NULL;
}

int sbx_choice_check(const struct sbx_settings *settings, char **note, struct sbx_error *err)
{
	struct taken t = {.names = sbx_backend_secrets(settings)};
	const struct sbx_host host = {.settings = settings, .secret = find, .data = &t};
	int r = 0;

	for (size_t i = 0; !r && i < SECRETS_MOST && t.names[i]; i++)
		r = sbx_secret_take(t.names[i], &t.secrets[i]);
	r = r < 0 ? sbx_fail(err, -r, "a secret cannot be kept: %s", strerror(-r))
	          : sbx_backend_check(&host, err);
	*note = r ? NULL : sbx_backend_note(&host);
	for (size_t i = 0; i < SECRETS_MOST; i++)
		sbx_secret_free(t.secrets[i]);
	return r;
}
