/* Where a thread waits for work: asleep, or for a short while before work is expected awake on its processor.
 *
 * A box is three words: `posts` counts what was put into it, `bell` is what the owner sleeps on, `awake` says that it is
 * not asleep.  `from` and `until` (monotonic ns) bound the time in which the owner stays awake. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct box {
  _Atomic uint32_t posts, bell, awake, unused;
  _Atomic int64_t from, until;
};

static int64_t now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * INT64_C(1000000000) + at.tv_nsec;
}

/* Hypervisors take the processor from a guest that runs many `pause` in a row, so there is none. */
static void relax(void) {
#if defined(__aarch64__)
  __asm__ volatile("isb");
#else
  for (int n = 0; n < 16; n++) __asm__ volatile("nop");
#endif
}

static void ring(struct box *box) {
  atomic_fetch_add(&box->bell, 1);
  syscall(SYS_futex, &box->bell, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

/* Put something into the box; its owner is woken if it sleeps. */
void post(struct box *box) {
  atomic_fetch_add(&box->posts, 1);
  if (!atomic_load(&box->awake)) ring(box);
}

/* The same for an owner who is awake and needs what the caller has let go of: it is given a microsecond to take it. */
void hand_over(struct box *box) {
  post(box);
  for (int64_t until = now_ns() + 1000; now_ns() < until;) relax();
}

/* Let the owner be awake from one moment to another, if nothing is put into the box before. */
void expect(struct box *box, int64_t from, int64_t until) {
  atomic_store(&box->from, from);
  atomic_store(&box->until, until);
  if (!atomic_load(&box->awake)) ring(box);
}

/* Wait until the number of posts is another than `seen`; returns it. */
uint32_t park(struct box *box, uint32_t seen) {
  uint32_t posts;
  while ((posts = atomic_load(&box->posts)) == seen) {
    int64_t from = atomic_load(&box->from), until = atomic_load(&box->until), now = now_ns();
    if (from <= now && now < until) {
      atomic_store(&box->awake, 1);
      for (int n = 0; n < 32 && atomic_load(&box->posts) == seen; n++) relax();
      continue;
    }
    uint32_t bell = atomic_load(&box->bell);
    atomic_store(&box->awake, 0);
    if (atomic_load(&box->posts) != seen) break;
    struct timespec at = {from / 1000000000, from % 1000000000};
    syscall(SYS_futex, &box->bell, FUTEX_WAIT_BITSET_PRIVATE, bell, now < from ? &at : 0, 0, FUTEX_BITSET_MATCH_ANY);
  }
  atomic_store(&box->awake, 1);
  return atomic_load(&box->posts);
}
