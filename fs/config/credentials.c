#include "fs/config/credentials.h"

#include <ctype.h>
#include <dirent.h>
#include <fnmatch.h>
#include <string.h>

#include "sandboxfs/cleanup.h"

#define TOKEN_MIN 20 /* characters of a part of an address that may be a token */

/* Names that only credentials have: none of tools' own files is called so, */
static const char *const stores[] = {".env",
                                     ".env.*",
                                     ".npmrc",
                                     "npmrc",
                                     ".yarnrc*",
                                     ".netrc",
                                     "_netrc",
                                     ".pypirc",
                                     ".git",
                                     ".git-credentials",
                                     ".ssh",
                                     ".aws",
                                     ".azure",
                                     ".docker",
                                     ".dockercfg",
                                     ".kube",
                                     ".gnupg",
                                     ".password-store",
                                     ".vault-token",
                                     ".pgpass",
                                     ".my.cnf",
                                     ".mylogin.cnf",
                                     ".htpasswd",
                                     "id_rsa",
                                     "id_ed25519",
                                     "id_ecdsa",
                                     "id_dsa",
                                     "credentials",
                                     "credentials.json",
                                     "credentials.toml",
                                     "secrets.y*ml",
                                     "secrets.json",
                                     "secrets.toml",
                                     "auth.json",
                                     "application_default_credentials.json",
                                     "service-account*.json",
                                     "*.tfstate*",
                                     "*.tfvars",
                                     "*.kdbx"};

/* what a tool's own file may be called too (secrets.py, cacert.pem), */
static const char *const others[] = {
        ".env*",       ".gitconfig",  "credentials*", ".credentials", "id_rsa*",
        "id_ed25519*", "id_ecdsa*",   "id_dsa*",      "*.pem",        "*.key",
        "*.p12",       "*.pfx",       "*.keystore",   "*.jks",        "secrets*",
        ".secrets*",   "keyrings",    ".mozilla",     "gcloud",       "gh",
        "hub",         ".config",     ".terraform.d", ".boto",        ".s3cfg",
        "*_history",   "kubeconfig*", "*.ppk",        "*.ovpn",       ".dockerconfigjson",
        ".condarc",    ".m2",         ".gem",         ".bundle"};

/* and what is a store when it is a directory, and else the tool. */
static const char *const tools[] = {"gh", "hub", "gcloud"};

/* In a line of settings, or the value of a variable. */
static const char *const words[] = {"token",   "passw",      "secret", "_auth", "apikey", "api-key",
                                    "api_key", "credential", "key=",   "sig=",  "bearer"};

static bool is_one_of(const char *const *patterns, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (fnmatch(patterns[i], name, 0) == 0)
			return true;
	return false;
}

bool sbx_is_secret_store(const char *name)
{
	return is_one_of(stores, SBX_ARRAY_SIZE(stores), name);
}

bool sbx_is_credential(const char *name)
{
	return sbx_is_secret_store(name) || is_one_of(others, SBX_ARRAY_SIZE(others), name);
}

bool sbx_is_tool_of_store(const char *name, unsigned char type)
{
	return type != DT_DIR && is_one_of(tools, SBX_ARRAY_SIZE(tools), name);
}

/* Letters and digits mixed, without a word in sight. */
static bool is_random(const char *part, size_t n)
{
	size_t digits = 0, letters = 0;

	for (size_t i = 0; i < n; i++) {
		if (isdigit((unsigned char)part[i]))
			digits++;
		else if (isalpha((unsigned char)part[i]))
			letters++;
		else if (!strchr("_-", part[i]))
			return false;
	}
	return n >= TOKEN_MIN && digits >= 3 && letters >= 3;
}

bool sbx_looks_secret(const char *value)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(words); i++)
		if (strcasestr(value, words[i]))
			return true;
	while (*value) {
		size_t n = strcspn(value, "/:?&=@,; \t\"'.");

		if (is_random(value, n))
			return true;
		value += n + (value[n] != '\0');
	}
	return false;
}
