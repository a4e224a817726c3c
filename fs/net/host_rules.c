/*
 * The rules of net=allow, and which addresses a name may lead to: IANA's registries of special
 * addresses, and those at which clouds keep what they tell their machines, are no reason to go
 * there.
 */
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

/* --- one host ------------------------------------------------------------------------------------
 */

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

/* Whether resolvers take LABEL for a part of an address, in whatever base. */
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

/* --- the list
 * --------------------------------------------------------------------------------------- */

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
		return sbx_no_memory(err);
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

struct block {
	const char *address;
	unsigned bits;
	enum sbx_reach least; /* that leads there */
};

/* The first that fits counts. */
static const struct block v4_blocks[] = {
        {"0.0.0.0", 8, SBX_REACH_LITERAL},
        {"100.100.100.200", 32, SBX_REACH_LITERAL}, /* metadata */
        {"169.254.0.0", 16, SBX_REACH_LITERAL},     /* links, and metadata */
        {"192.0.0.192", 32, SBX_REACH_LITERAL},     /* metadata */
        {"168.63.129.16", 32, SBX_REACH_LITERAL},   /* metadata */
        {"224.0.0.0", 3, SBX_REACH_LITERAL},        /* multicast, reserved, broadcast */
        {"10.0.0.0", 8, SBX_REACH_PRIVATE},
        {"100.64.0.0", 10, SBX_REACH_PRIVATE},
        {"127.0.0.0", 8, SBX_REACH_PRIVATE},
        {"172.16.0.0", 12, SBX_REACH_PRIVATE},
        {"192.0.0.0", 24, SBX_REACH_PRIVATE},
        {"192.0.2.0", 24, SBX_REACH_PRIVATE},
        {"192.88.99.0", 24, SBX_REACH_PRIVATE},
        {"192.168.0.0", 16, SBX_REACH_PRIVATE},
        {"198.18.0.0", 15, SBX_REACH_PRIVATE},
        {"198.51.100.0", 24, SBX_REACH_PRIVATE},
        {"203.0.113.0", 24, SBX_REACH_PRIVATE},
};

static const struct block v6_blocks[] = {
        {"::1", 128, SBX_REACH_PRIVATE},        {"::", 96, SBX_REACH_LITERAL},
        {"fd00:ec2::", 32, SBX_REACH_LITERAL}, /* metadata */
        {"fe80::", 10, SBX_REACH_LITERAL},     /* links */
        {"ff00::", 8, SBX_REACH_LITERAL},      /* multicast */
        {"64:ff9b:1::", 48, SBX_REACH_PRIVATE}, {"100::", 64, SBX_REACH_PRIVATE},
        {"2001::", 23, SBX_REACH_PRIVATE}, /* Teredo among them */
        {"2001:db8::", 32, SBX_REACH_PRIVATE},  {"3fff::", 20, SBX_REACH_PRIVATE},
        {"fc00::", 7, SBX_REACH_PRIVATE},       {"fec0::", 10, SBX_REACH_PRIVATE},
};

/* IPv6 addresses that stand for the IPv4 one at BYTE of theirs. */
static const struct {
	const char *address;
	unsigned bits, byte;
} embedded[] = {{"::ffff:0:0", 96, 12}, {"64:ff9b::", 96, 12}, {"2002::", 16, 2}};

static bool is_in(int family, const void *address, const char *block, unsigned bits)
{
	const unsigned char *a = address;
	unsigned char b[16];
	unsigned whole = bits / 8, rest = bits % 8;

	inet_pton(family, block, b);
	return memcmp(a, b, whole) == 0 && (!rest || !((a[whole] ^ b[whole]) >> (8 - rest)));
}

static enum sbx_reach least(int family, const void *address, const struct block *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_in(family, address, blocks[i].address, blocks[i].bits))
			return blocks[i].least;
	return SBX_REACH_PUBLIC;
}

static enum sbx_reach least_v4(const void *address)
{
	return least(AF_INET, address, v4_blocks, SBX_ARRAY_SIZE(v4_blocks));
}

static enum sbx_reach least_v6(const unsigned char *address)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(embedded); i++)
		if (is_in(AF_INET6, address, embedded[i].address, embedded[i].bits))
			return least_v4(address + embedded[i].byte);
	return least(AF_INET6, address, v6_blocks, SBX_ARRAY_SIZE(v6_blocks));
}

bool sbx_address_allowed(const struct sockaddr *address, enum sbx_reach reach)
{
	if (reach == SBX_REACH_NONE)
		return false;
	if (address->sa_family == AF_INET)
		return reach >= least_v4(&((const struct sockaddr_in *)address)->sin_addr);
	if (address->sa_family == AF_INET6)
		return reach >= least_v6(((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr);
	return false;
}
