/* SPDX-License-Identifier: Apache-2.0 */
/* What a miss fetches of a file of more than one piece: ahead.c, which is pure (time and memory are
 * arguments), and has the why; ahead_files.c has what it decides from. Included by cache_priv.h; needs
 * nothing of it. */
#ifndef CLAIRFS_CACHE_AHEAD_PRIV_H
#define CLAIRFS_CACHE_AHEAD_PRIV_H

#include <stdbool.h>
#include <stdint.h>

enum {
	AHEAD_SETS = 64,
	AHEAD_WAYS = 8,
	AHEAD_STREAMS = 20,      /* of one file */
	AHEAD_FIRST = 128 << 10, /* of the beginning of a file, and what the kernel reads at once */
	AHEAD_NEAR = 256 << 10,  /* READs of the kernel's read-ahead may be so far apart */
	AHEAD_MOST = 16 << 20,   /* of one stream, or at one hint */
	/* Bytes that may be fetched for nothing before anything is known, of one file; and in all,
	 * unless the cache is small. */
	AHEAD_FILE_CREDIT = 8 << 20,
	AHEAD_CREDIT = 64 << 20,
	AHEAD_SHARE = 16, /* beyond these: one part of so many of what was asked for */
	/* The last READs of a file that stayed alone; of those, what is no longer may be hot. */
	AHEAD_PLACES = 128,
	AHEAD_HOT = 64 << 10,
};

/* READs that follow each other: a run. */
struct ahead_stream {
	uint64_t start, end; /* the next READ is expected at the end */
	uint64_t run;        /* bytes read of that */
	uint64_t since;      /* of `run`: from there on it doubles anew; 0: from its beginning */
	uint64_t fetched;    /* up to here it was fetched ahead */
	uint64_t used_at;    /* ahead.tick of its last READ */
	uint32_t n_reads;    /* 0: nobody's */
	uint32_t n_learned;  /* of these: what the run says was heard when it had so many */
	uint32_t reader;     /* of its last READ */
	bool is_part;        /* who began it had read parts of the file before */
	uint32_t round;      /* of ahead, in which it was counted */
};

/* How long runs are that did not end with their file. */
struct ahead_lengths {
	uint64_t typical; /* rather too short */
	uint32_t n;       /* runs that were counted */
};

struct ahead_file {
	uint32_t file;
	bool is_used;
	bool is_whole;         /* misses fetch whole pieces: see ahead.c */
	uint64_t size;
	uint64_t asked, spent; /* bytes of READs; bytes asked of the source for them and ahead */
	uint64_t whole_asked, whole_spent; /* likewise, since it is_whole */
	uint64_t whole_from; /* of `asked`: not to be read in whole pieces before */
	uint64_t gaps; /* bytes that streams have left out, and not come back to */
	/* Of a hint: bytes that were fetched for it, and not come for yet; where it ends. */
	uint64_t hint_bytes, hint, hint_end;
	bool is_hint; /* the READ that is under way is taken for one */
	uint64_t parts;        /* bit per 64th of the file: something of it was read */
	uint64_t used_at;
	struct ahead_lengths runs;
	uint32_t alone, pairs; /* how sure it is that a READ stays alone, that a run is two */
	uint32_t place[AHEAD_PLACES]; /* ring, pages: where they began, one more than that */
	uint32_t n_places;
	struct ahead_stream stream[AHEAD_STREAMS];
};

struct ahead {
	struct ahead_file file[AHEAD_SETS][AHEAD_WAYS];
	uint64_t tick;         /* READs so far */
	uint64_t asked, spent; /* of all files */
	uint64_t whole_bytes;  /* of files that are fetched in whole pieces */
	struct ahead_lengths runs; /* of all files, those that did not begin with theirs */
	int32_t ends;          /* how sure it is that a file read from its beginning is read to its end */
	uint32_t vain, n_vain; /* how sure it is that hints are for nothing; those not taken since */
	/* streams that were read in this round, and in the one before */
	uint64_t round_ns;
	uint32_t round, n_streams, n_streams_before;
	/* what the source can do */
	uint64_t bin_ns, bin_bytes, bytes_per_s;
	uint64_t latency_ns, latency_before_ns, latency_at_ns; /* the least of a while; 0: unknown */
	uint64_t mean_ns;
};

/* A READ, cut at the end of the file. */
struct ahead_read {
	uint32_t file;
	uint32_t reader; /* a thread; 0: not known */
	uint32_t length;
	uint64_t offset, size;
	uint64_t now_ns;
	uint64_t room;   /* bytes of memory for what the plan does not own */
	uint64_t unused; /* of these: fetched ahead, and nobody has come for it yet */
	bool is_sample;  /* of an order that is known: it is read from the beginning to the end */
};

struct ahead_advice {
	bool is_whole;     /* whole pieces for what is missing of it; else its own bytes only */
	uint64_t from, to; /* to be fetched besides; the same: nothing */
	/* It goes on with nothing, as others, and one of the last of these began there, too: the kernel
	 * has lost what all readers of the file want (a footer, a table of offsets), and may again. */
	bool is_again;
};

void ahead_read(struct ahead *a, const struct ahead_read *r, struct ahead_advice *ret);
/* The source is asked for so many bytes of a file, for a READ or ahead of one. True: the account of
 * whole pieces pays. */
bool ahead_spend(struct ahead *a, uint32_t file, uint64_t bytes);
/* It was not asked after all, or gave nothing. */
void ahead_refund(struct ahead *a, uint32_t file, uint64_t bytes, bool is_whole);
/* What was to be fetched ahead from there on has not come: streams begin anew at that place, with
 * little. */
void ahead_lost(struct ahead *a, uint32_t file, uint64_t at);
/* The source has answered. */
void ahead_answered(struct ahead *a, uint64_t now_ns, uint64_t bytes, uint64_t latency_ns);
/* How far ahead of its reader a stream may be now. */
uint64_t ahead_reach(const struct ahead *a);

/* --- what ahead.c decides from --- */

/* NULL: nothing is known of it. */
struct ahead_file *ahead_file_find(struct ahead *a, uint32_t file);
/* Finds it, or makes it in place of the one in its set that was not read for longest. */
struct ahead_file *ahead_file_of(struct ahead *a, const struct ahead_read *r);
/* A READ of it: what was asked for, and where. */
void ahead_file_asked(struct ahead *a, struct ahead_file *f, const struct ahead_read *r);
/* Whether misses of it fetch whole pieces, of a file of which so much has room. */
bool ahead_file_is_whole(struct ahead *a, struct ahead_file *f, uint64_t room);
/* Notes a READ that goes on with nothing; whether one of the last ones began at the same place. */
bool ahead_file_again(struct ahead_file *f, const struct ahead_read *r);
/* A file that was begun at its beginning was read to its end, or was not. */
void ahead_begun_ended(struct ahead *a, const struct ahead_file *f, const struct ahead_stream *s);
/* What became of the last hint: nobody came for half of it, or somebody did. */
void ahead_hint_ended(struct ahead *a, struct ahead_file *f);
/* Bytes that may be fetched now and nobody has asked for. The READ that is under way may have its own
 * to pay. */
uint64_t ahead_allowance(const struct ahead *a, const struct ahead_file *f,
			 const struct ahead_read *r);

#endif
