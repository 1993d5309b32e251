/* SPDX-License-Identifier: Apache-2.0 */
/* The sieve, built for several instruction sets and chosen at run time: one binary runs on every
 * node of a cluster. The kernel is written once, in the compilers' vector extension; what differs
 * (width, how a table is looked up) is named here. The scalar one is a second, plain
 * implementation: it is what the others are tested against, and what runs on processors without
 * vectors.
 *
 * Only this file may ask which processor it is compiled for. Any thread; no state. */
#include <string.h>

#include "recover_priv.h"

struct recover_isa {
	const char *name;
	size_t (*scan)(const struct sieve *s, const uint32_t *seed, size_t count, uint32_t *left);
	bool (*works)(void);
};

static bool works_always(void)
{
	return true;
}

static size_t scan_scalar(const struct sieve *s, const uint32_t *seed, size_t count, uint32_t *left)
{
	size_t n = 0;

	for (size_t at = 0; at < count; at++) {
		uint32_t place[SIEVE_SWAPS_MAX], moved[SIEVE_SWAPS_MAX], hits = 0, word = 0;
		struct mt mt;

		mt_seed(&mt, seed[at]);
		for (uint32_t t = 0; t < s->n_tests; t++) {
			const struct sieve_test *test = &s->tests[t];
			uint32_t value = 0, here = test->at;

			for (; word <= test->at; word++)
				value = mt_u32(&mt);
			value = value % test->divisor + test->at;
			if (s->has_swaps) {
				place[t] = value;
				for (uint32_t j = 0; j < t; j++) {
					if (place[j] == place[t])
						value = moved[j];
					if (place[j] == test->at)
						here = moved[j];
				}
				moved[t] = here;
			}
			hits += sieve_has(s, value);
		}
		if (hits >= s->threshold)
			left[n++] = seed[at];
	}
	return n;
}

#define GATHER_PLAIN(word, table, at)                                                              \
	do {                                                                                       \
		VEC at_ = (at);                                                                    \
		for (size_t i_ = 0; i_ < sizeof(VEC) / 4; i_++)                                    \
			(word)[i_] = (table)[at_[i_]];                                             \
	} while (0)
#define MUL_PLAIN(a, b) (((a)&0xffffffff) * (b))

#define SCAN_ISA plain
#define SCAN_TARGET
#define SCAN_BYTES 16
#define SCAN_GROUP 4
#define SCAN_MUL MUL_PLAIN
#define SCAN_GATHER GATHER_PLAIN
#include "scan_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define GATHER_AVX2(word, table, at)                                                               \
	((word) = (VEC)_mm256_i32gather_epi32((const int *)(table), (__m256i)(at), 4))
#define MUL_AVX2(a, b) ((WIDE)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))

#define SCAN_ISA avx2
#define SCAN_TARGET __attribute__((target("avx2")))
#define SCAN_BYTES 32
#define SCAN_GROUP 6
#define SCAN_MUL MUL_AVX2
#define SCAN_GATHER GATHER_AVX2
#include "scan_kernel.h"

#define GATHER_AVX512(word, table, at)                                                             \
	((word) = (VEC)_mm512_i32gather_epi32((__m512i)(at), (const void *)(table), 4))
#define MUL_AVX512(a, b) ((WIDE)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))

#define SCAN_ISA avx512
#define SCAN_TARGET __attribute__((target("avx512f")))
#define SCAN_BYTES 64
#define SCAN_GROUP 6
#define SCAN_MUL MUL_AVX512
#define SCAN_GATHER GATHER_AVX512
#include "scan_kernel.h"

/* These also ask whether the kernel saves the registers. */
static bool works_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

static bool works_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}
#endif

static const struct recover_isa isas[] = {
#if defined(__x86_64__)
	{ "avx512", scan_avx512, works_avx512 },
	{ "avx2", scan_avx2, works_avx2 },
#endif
	{ "vector", scan_plain, works_always },
	{ "scalar", scan_scalar, works_always },
};

const struct recover_isa *recover_isa(unsigned i)
{
	return i < ARRAY_LEN(isas) ? &isas[i] : NULL;
}

const char *recover_isa_name(const struct recover_isa *isa)
{
	return isa->name;
}

bool recover_isa_works(const struct recover_isa *isa)
{
	return isa->works();
}

const struct recover_isa *recover_isa_best(void)
{
	const struct recover_isa *isa = isas;

	while (!isa->works())
		isa++;
	return isa;
}

size_t scan_seeds(const struct recover_isa *isa, const struct sieve *s, const uint32_t *seed,
		  size_t count, uint32_t *left)
{
	return isa->scan(s, seed, count, left);
}
