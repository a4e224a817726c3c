/*
 * Tokens: one that was made for us, which has to be told its team and project, or one of OIDC: a
 * JWT, which names both, and ends after some hours. Its signature is Vercel's to check.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/secret.h"

static int value_of(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	                             "0123456789-_";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* The bytes that LEN characters of base64url are, malloc'd; NULL: they are none. */
static char *decode(const char *text, size_t len, size_t *size)
{
	char *bytes = malloc(len / 4 * 3 + 4);
	unsigned bits = 0, n = 0;

	*size = 0;
	for (size_t i = 0; bytes && i < len && text[i] != '='; i++) {
		const int v = value_of(text[i]);

		if (v < 0) {
			free(bytes);
			return NULL;
		}
		bits = (bits << 6 | (unsigned)v) & 0xffffff;
		n += 6;
		if (n >= 8) {
			n -= 8;
			bytes[(*size)++] = (char)(bits >> n);
		}
	}
	return bytes;
}

/* The claims of a JWT, the caller's; NULL: TEXT is none. */
static struct json_object *claims_of(const char *text)
{
	const char *first = strchr(text, '.'), *second = first ? strchr(first + 1, '.') : NULL;
	_cleanup_free_ char *bytes = NULL;
	struct json_object *claims;
	size_t size;

	if (!second || strchr(second + 1, '.'))
		return NULL;
	bytes = decode(first + 1, (size_t)(second - first - 1), &size);
	claims = bytes ? sbx_object_read(bytes, size) : NULL;
	if (claims && !*sbx_member_text(claims, "owner_id")) {
		json_object_put(claims);
		claims = NULL;
	}
	return claims;
}

/* -ENOENT: there is none; -EACCES: something of it is missing, which ERR says. */
static int look_at(const char *variable, const struct sbx_secret *secret,
                   const struct sbx_vercel_config *config, struct vercel_token *ret,
                   struct sbx_error *err)
{
	_cleanup_object_ struct json_object *claims =
	        secret ? claims_of(sbx_secret_text(secret)) : NULL;
	const char *team = claims ? sbx_member_text(claims, "owner_id") : config->team;
	const char *project = config->project;

	if (!secret)
		return -ENOENT;
	if (*sbx_member_text(claims, "project_id"))
		project = sbx_member_text(claims, "project_id");
	*ret = (struct vercel_token){.secret = secret, .variable = variable};
	ret->expires_s = (int64_t)sbx_member_number(claims, "exp");
	if (!team || !*team)
		return sbx_fail(err, EACCES, "%s names no team, and VERCEL_TEAM_ID is not set",
		                variable);
	if (!project || !*project)
		return sbx_fail(err, EACCES,
		                "%s names no project, and VERCEL_PROJECT_ID is not set", variable);
	snprintf(ret->team, sizeof(ret->team), "%s", team);
	snprintf(ret->project, sizeof(ret->project), "%s", project);
	return 0;
}

int vercel_token_choose(const struct sbx_vercel_config *config, struct vercel_token *ret,
                        struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	int r = look_at("VERCEL_TOKEN", config->token, config, ret, &own);

	if (r && config->oidc)
		r = look_at("VERCEL_OIDC_TOKEN", config->oidc, config, ret, &own);
	if (r == -ENOENT)
		r = sbx_fail(&own, EACCES,
		             "Vercel token required (set VERCEL_TOKEN, VERCEL_TEAM_ID and "
		             "VERCEL_PROJECT_ID, or VERCEL_OIDC_TOKEN by `vercel env pull`)");
	if (r && err)
		*err = own;
	return r;
}

bool vercel_token_expired(const struct vercel_token *token)
{
	return token->expires_s && sbx_real_ms() / 1000 >= token->expires_s;
}

/* "": it is not known, or cannot be said. */
static void write_end(const struct vercel_token *token, char *text, size_t size)
{
	const time_t at = (time_t)token->expires_s;
	struct tm tm;

	*text = '\0';
	if (at && gmtime_r(&at, &tm))
		strftime(text, size, "%Y-%m-%d %H:%M UTC", &tm);
}

char *vercel_token_note(const struct vercel_token *token)
{
	char end[48], *text = NULL;

	write_end(token, end, sizeof(end));
	if (*end && asprintf(&text, "%s holds until %s", token->variable, end) < 0)
		text = NULL;
	return text;
}

int vercel_token_refused(const struct vercel_token *token, struct sbx_error *err)
{
	const char *mend = strcmp(token->variable, "VERCEL_OIDC_TOKEN") == 0
	                           ? "; `vercel env pull` brings a new one"
	                           : "";
	char end[48];

	write_end(token, end, sizeof(end));
	if (*end && vercel_token_expired(token))
		return sbx_fail(err, EKEYREJECTED, "%s has expired at %s%s", token->variable, end,
		                mend);
	return sbx_fail(err, EKEYREJECTED, "Vercel does not accept %s for the team %s%s",
	                token->variable, token->team, mend);
}
