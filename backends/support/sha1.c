/* FIPS 180-4, section 6.1. It guards against damage here, not against forgery. */
#include "backends/support/sha1.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

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

typedef void compress_fn(uint32_t h[5], const unsigned char *blocks, size_t n);

static void compress_plain(uint32_t h[5], const unsigned char *blocks, size_t n)
{
	for (; n; n--, blocks += BLOCK)
		compress(h, blocks);
}

#ifdef __x86_64__

/* Four rounds with the function F; the first four groups take the block as it is, the others what follows from it. */
#define GROUP(g, f)                                                                                \
	do {                                                                                       \
		if ((g) >= 4)                                                                      \
			m[(g) % 4] = _mm_sha1msg2_epu32(                                           \
			        _mm_xor_si128(_mm_sha1msg1_epu32(m[(g) % 4], m[((g) + 1) % 4]),    \
			                      m[((g) + 2) % 4]),                                   \
			        m[((g) + 3) % 4]);                                                 \
		w = (g) ? _mm_sha1nexte_epu32(e, m[(g) % 4]) : _mm_add_epi32(e, m[0]);             \
		e = abcd;                                                                          \
		abcd = _mm_sha1rnds4_epu32(abcd, w, f);                                            \
	} while (0)
#define FIVE(g, f)                                                                                 \
	do {                                                                                       \
		GROUP((g), f);                                                                     \
		GROUP((g) + 1, f);                                                                 \
		GROUP((g) + 2, f);                                                                 \
		GROUP((g) + 3, f);                                                                 \
		GROUP((g) + 4, f);                                                                 \
	} while (0)

/* The processor's own instructions for it: several times faster. */
__attribute__((target("sha,sse4.1"))) static void
compress_native(uint32_t h[5], const unsigned char *blocks, size_t n)
{
	const __m128i order = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
	__m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)h), 0x1b);
	__m128i e = _mm_set_epi32((int)h[4], 0, 0, 0), m[4], w;

	for (; n; n--, blocks += BLOCK) {
		const __m128i was = abcd, was_e = e;

		for (int i = 0; i < 4; i++)
			m[i] = _mm_shuffle_epi8(
			        _mm_loadu_si128((const __m128i *)(blocks + (size_t)16 * (size_t)i)),
			        order);
		FIVE(0, 0);
		FIVE(5, 1);
		FIVE(10, 2);
		FIVE(15, 3);
		e = _mm_sha1nexte_epu32(e, was_e);
		abcd = _mm_add_epi32(abcd, was);
	}
	_mm_storeu_si128((__m128i *)h, _mm_shuffle_epi32(abcd, 0x1b));
	h[4] = (uint32_t)_mm_extract_epi32(e, 3);
}

static bool has_native(void)
{
	unsigned a, b, c, d, one_c;

	return __get_cpuid(1, &a, &b, &one_c, &d) && (one_c & bit_SSE4_1) &&
	       __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

static compress_fn *fastest(void)
{
	return has_native() ? compress_native : compress_plain;
}

#else

static compress_fn *fastest(void)
{
	return compress_plain;
}

#endif

static void sum(compress_fn *fn, const void *data, size_t len, unsigned char ret[SBX_SHA1_SIZE])
{
	uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
	const unsigned char *p = data;
	unsigned char tail[2 * BLOCK] = {0};
	uint64_t bits = (uint64_t)len * 8;
	size_t rest = len % BLOCK, end = rest < BLOCK - 8 ? BLOCK : 2 * BLOCK;

	fn(h, p, len / BLOCK);
	if (rest)
		memcpy(tail, p + len - rest, rest);
	tail[rest] = 0x80;
	for (int i = 0; i < 8; i++)
		tail[end - 1 - (size_t)i] = (unsigned char)(bits >> (8 * i));
	fn(h, tail, end / BLOCK);
	for (int i = 0; i < SBX_SHA1_SIZE; i++)
		ret[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

void sbx_sha1(const void *data, size_t len, unsigned char ret[SBX_SHA1_SIZE])
{
	sum(fastest(), data, len, ret);
}

void sbx_sha1_plain(const void *data, size_t len, unsigned char ret[SBX_SHA1_SIZE])
{
	sum(compress_plain, data, len, ret);
}
