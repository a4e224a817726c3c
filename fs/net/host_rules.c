#include "fs/net/host_rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/cleanup.h"

#define LABEL_MAX 63
#define PRIVATE   "/private"

struct rule {
	struct sbx_target target; /* port 0: those of the web */
	bool below;               /* all names below the target */
	bool private;
};

struct sbx_hosts {
	size_t n;
	struct rule rules[];
};

/* --- one host ------------------------------------------------------------------------------------ */

static char lower(char c)
{
	return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_';
}

/* What resolvers take for an address, in whatever base. */
static bool is_number(const char *label, size_t len)
{
	if (len > 1 && label[0] == '0' && label[1] == 'x')
		return true;
	for (size_t i = 0; i < len; i++)
		if (!is_digit(label[i]))
			return false;
	return true;
}

/* NAME is in lower case. */
static bool is_name(const char *name)
{
	for (;;) {
		size_t len = strcspn(name, ".");

		if (!len || len > LABEL_MAX || name[0] == '-' || name[len - 1] == '-')
			return false;
		for (size_t i = 0; i < len; i++)
			if (!is_name_char(name[i]))
				return false;
		if (!name[len])
			return !is_number(name, len);
		name += len + 1;
	}
}

static bool parse_v4(const char *text, char host[SBX_HOST_MAX])
{
	struct in_addr a;

	return inet_pton(AF_INET, text, &a) == 1 && inet_ntop(AF_INET, &a, host, SBX_HOST_MAX);
}

/* TEXT without its brackets. */
static bool parse_v6(const char *text, char host[SBX_HOST_MAX])
{
	struct in6_addr a;

	if (inet_pton(AF_INET6, text, &a) != 1)
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&a))
		return inet_ntop(AF_INET, &a.s6_addr[12], host, SBX_HOST_MAX);
	return inet_ntop(AF_INET6, &a, host, SBX_HOST_MAX);
}

static int parse_port(const char *text, size_t len, uint16_t *ret)
{
	unsigned port = 0;

	if (len < 1 || len > 5)
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		if (!is_digit(text[i]))
			return -EINVAL;
		port = port * 10 + (unsigned)(text[i] - '0');
	}
	if (port < 1 || port > UINT16_MAX)
		return -EINVAL;
	*ret = (uint16_t)port;
	return 0;
}

static int parse_host(const char *text, size_t len, struct sbx_target *ret)
{
	char copy[SBX_HOST_MAX + 1];

	if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
		if (len - 2 >= sizeof(copy))
			return -EINVAL;
		memcpy(copy, text + 1, len - 2);
		copy[len - 2] = '\0';
		ret->literal = true;
		return strlen(copy) == len - 2 && parse_v6(copy, ret->host) ? 0 : -EINVAL;
	}
	if (len > 1 && text[len - 1] == '.')
		len--;
	if (len < 1 || len >= SBX_HOST_MAX)
		return -EINVAL;
	for (size_t i = 0; i < len; i++)
		copy[i] = lower(text[i]);
	copy[len] = '\0';
	ret->literal = strlen(copy) == len && parse_v4(copy, ret->host);
	if (!ret->literal && (strlen(copy) != len || !is_name(copy)))
		return -EINVAL;
	if (!ret->literal)
		memcpy(ret->host, copy, len + 1);
	return 0;
}

int sbx_target_parse(const char *text, size_t len, uint16_t default_port, struct sbx_target *ret)
{
	struct sbx_target target = {.port = default_port};
	const char *colon = memrchr(text, ':', len);
	int r = 0;

	/* Colons within brackets are the address's. */
	if (colon && memchr(colon, ']', len - (size_t)(colon - text)))
		colon = NULL;
	if (colon) {
		r = parse_port(colon + 1, len - (size_t)(colon + 1 - text), &target.port);
		len = (size_t)(colon - text);
	} else if (!default_port) {
		r = -EINVAL;
	}
	if (!r)
		r = parse_host(text, len, &target);
	if (!r)
		*ret = target;
	return r;
}

/* --- the list --------------------------------------------------------------------------------------- */

static bool has_suffix(const char *text, size_t len, const char *suffix)
{
	size_t n = strlen(suffix);

	return len > n && memcmp(text + len - n, suffix, n) == 0;
}

static int parse_rule(const char *text, size_t len, struct rule *ret)
{
	struct rule rule = {0};
	bool any_port;
	int r;

	if (has_suffix(text, len, PRIVATE)) {
		rule.private = true;
		len -= strlen(PRIVATE);
	}
	if (len > 2 && memcmp(text, "*.", 2) == 0) {
		rule.below = true;
		text += 2;
		len -= 2;
	}
	any_port = sbx_target_parse(text, len, 0, &rule.target) < 0;
	r = any_port ? sbx_target_parse(text, len, 1, &rule.target) : 0;
	if (any_port)
		rule.target.port = 0;
	if (r < 0 || (rule.target.literal && (rule.below || rule.private)))
		return -EINVAL;
	*ret = rule;
	return 0;
}

static int refuse_rule(const char *text, size_t len, struct sbx_error *err)
{
	if (!len)
		return sbx_fail(err, EINVAL, "net=allow: an empty rule");
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] >= 0x80)
			return sbx_fail(
			        err, EINVAL,
			        "net=allow: \"%.*s\": write the name as DNS has it (xn--...)",
			        (int)len, text);
	return sbx_fail(
	        err, EINVAL,
	        "net=allow: \"%.*s\" is not HOST[:PORT][/private], with HOST a name, *.NAME, "
	        "an IPv4 address or an [IPv6] address",
	        (int)len, text);
}

int sbx_hosts_parse(const char *list, struct sbx_hosts **ret, struct sbx_error *err)
{
	struct sbx_hosts *hosts;
	size_t rules = 1;

	for (const char *p = list; *p; p++)
		rules += *p == ',';
	hosts = calloc(1, sizeof(*hosts) + rules * sizeof(hosts->rules[0]));
	if (!hosts)
		return sbx_fail(err, ENOMEM, "out of memory");
	for (;; list++) {
		size_t len = strcspn(list, ",");

		if (parse_rule(list, len, &hosts->rules[hosts->n]) < 0) {
			free(hosts);
			return refuse_rule(list, len, err);
		}
		hosts->n++;
		list += len;
		if (!*list)
			break;
	}
	*ret = hosts;
	return 0;
}

void sbx_hosts_free(struct sbx_hosts *hosts)
{
	free(hosts);
}

static bool matches(const struct rule *rule, const struct sbx_target *target)
{
	size_t have = strlen(target->host), want = strlen(rule->target.host);
	uint16_t port = rule->target.port;

	if (port ? port != target->port : target->port != 80 && target->port != 443)
		return false;
	if (rule->target.literal != target->literal)
		return false;
	if (!rule->below)
		return strcmp(rule->target.host, target->host) == 0;
	return have > want + 1 && target->host[have - want - 1] == '.' &&
	       strcmp(target->host + have - want, rule->target.host) == 0;
}

enum sbx_reach sbx_hosts_reach(const struct sbx_hosts *hosts, const struct sbx_target *target)
{
	enum sbx_reach best = SBX_REACH_NONE;

	for (size_t i = 0; i < hosts->n; i++) {
		const struct rule *rule = &hosts->rules[i];
		enum sbx_reach reach = rule->target.literal ? SBX_REACH_LITERAL
		                       : rule->private      ? SBX_REACH_PRIVATE
		                                            : SBX_REACH_PUBLIC;

		if (reach > best && matches(rule, target))
			best = reach;
	}
	return best;
}
