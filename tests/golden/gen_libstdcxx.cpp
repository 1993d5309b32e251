// SPDX-License-Identifier: Apache-2.0
// Writes golden vectors of dali-file with both generations of libstdc++'s std::shuffle, made by std::shuffle.
//
//   g++ -O2 gen_libstdcxx.cpp -lxxhash -o gen && g++ -O2 -U__UINT32_TYPE__ -DOLD gen_libstdcxx.cpp -lxxhash -o gen_old
//   (./gen heading; ./gen; ./gen_old) > order/libstdcxx.txt            (needs GCC 11 or later; seconds)
//
// What GCC 11 changed is how uniform_int_distribution reduces a word of a 32-bit generator: by a multiplication when the
// compiler has a 32-bit type by name, and as ever before, by a division, when it has not. So taking that name away brings
// the old generation out of the new header. The loop over places is the same in both. DALI adds nothing to std::shuffle
// but the seeds (gen_dali.py runs it, as far as a version is at hand).
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <xxhash.h>

#ifdef OLD
#define GENERATION 10
#else
#define GENERATION 11
#endif
#define SHOWN 64
#define SEED 524287 // DALI's kDaliDataloaderSeed

typedef std::vector<uint32_t> Samples;

static void show(const uint32_t *sample, size_t n)
{
	printf(n ? " " : " -");
	for (size_t i = 0; i < n; i++)
		printf("%s%" PRIu32, i ? "," : "", sample[i]);
}

static void emit(const char *options, const Samples &samples, int epoch)
{
	size_t n = samples.size(), shown = std::min<size_t>(n, SHOWN);

	printf("dali-file:%s:libstdcxx=%d %zu %d 0 %zu %016" PRIx64, options, GENERATION, n, epoch, n,
	       (uint64_t)XXH3_64bits(samples.data(), n * sizeof(uint32_t)));
	show(samples.data(), shown);
	show(samples.data() + n - shown, shown);
	printf("\n");
}

template <typename Engine> static void shuffle(Samples &samples, uint64_t seed)
{
	Engine g(seed);

	std::shuffle(samples.begin(), samples.end(), g);
}

static Samples sorted(size_t n)
{
	Samples samples(n);

	std::iota(samples.begin(), samples.end(), 0);
	return samples;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "heading") == 0) {
		printf("# LIVE: libstdc++ of GCC %d, gen_libstdcxx.cpp\n", __GNUC__);
		printf("# spec n epoch rank length xxh3-64(u32le) first64 last64\n");
		return 0;
	}
	for (size_t n : { 1, 2, 3, 4, 10, 1000, 1001, 65534, 65535, 65536, 65537, 1281167 }) {
		Samples once = sorted(n), after = sorted(n), after_64 = sorted(n);

		shuffle<std::mt19937>(once, SEED);
		emit("random_shuffle=1", once, 0);
		for (int epoch = 0; epoch < 3; epoch++) {
			shuffle<std::mt19937>(after, SEED + 1 + epoch);
			emit("shuffle_after_epoch=1:engine=32", after, epoch);
			shuffle<std::mt19937_64>(after_64, SEED + ((uint64_t)(epoch + 1) << 32));
			emit("shuffle_after_epoch=1:engine=64", after_64, epoch);
		}
	}
	return 0;
}
