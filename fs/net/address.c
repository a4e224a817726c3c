/*
 * Which addresses a name may lead to. IANA's registries of special addresses, and those at which clouds
 * keep what they tell their machines: no name is a reason to go there.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "fs/net/host_rules.h"
#include "sandboxfs/cleanup.h"

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
