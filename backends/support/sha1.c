/* FIPS 180-4, section 6.1. It guards against damage here, not against forgery. */
#include "backends/support/sha1.h"

#include <stdint.h>
#include <string.h>

#define BLOCK 64

static uint32_t rotate(uint32_t x, int n)
{
	return x << n | x >> (32 - n);
}

static uint32_t load(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void schedule(const unsigned char *block, uint32_t w[80])
{
	for (int t = 0; t < 16; t++)
		w[t] = load(block + (size_t)4 * (size_t)t);
	for (int t = 16; t < 80; t++)
		w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
}

/* Twenty rounds with the function F and the constant K. */
#define ROUNDS(from, f, k)                                                                         \
	for (int t = (from); t < (from) + 20; t++) {                                               \
		uint32_t next = rotate(a, 5) + (f) + e + (k) + w[t];                               \
                                                                                                   \
		e = d;                                                                             \
		d = c;                                                                             \
		c = rotate(b, 30);                                                                 \
		b = a;                                                                             \
		a = next;                                                                          \
	}

static void compress(uint32_t h[5], const unsigned char *block)
{
	uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

	schedule(block, w);
	ROUNDS(0, (b & c) | (~b & d), 0x5a827999)
	ROUNDS(20, b ^ c ^ d, 0x6ed9eba1)
	ROUNDS(40, (b & c) | (b & d) | (c & d), 0x8f1bbcdc)
	ROUNDS(60, b ^ c ^ d, 0xca62c1d6)
	h[0] += a;
	h[1] += b;
	h[2] += c;
	h[3] += d;
	h[4] += e;
}

void sbx_sha1(const void *data, size_t len, unsigned char ret[SBX_SHA1_SIZE])
{
	uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
	const unsigned char *p = data;
	unsigned char tail[2 * BLOCK] = {0};
	uint64_t bits = (uint64_t)len * 8;
	size_t rest = len % BLOCK, end = rest < BLOCK - 8 ? BLOCK : 2 * BLOCK;

	for (size_t at = 0; at + BLOCK <= len; at += BLOCK)
		compress(h, p + at);
	if (rest)
		memcpy(tail, p + len - rest, rest);
	tail[rest] = 0x80;
	for (int i = 0; i < 8; i++)
		tail[end - 1 - (size_t)i] = (unsigned char)(bits >> (8 * i));
	for (size_t at = 0; at < end; at += BLOCK)
		compress(h, tail + at);
	for (int i = 0; i < SBX_SHA1_SIZE; i++)
		ret[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}
