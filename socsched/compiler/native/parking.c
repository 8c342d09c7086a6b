/* Waiting of a thread for work: asleep, or spinning on its core for a short while before work is expected.
 *
 * A box is three words: `posts` counts the items put into it, `bell` is the futex the owner sleeps on, `awake` is set
 * while it is not asleep.  `from` and `until` (monotonic ns) bound the interval in which the owner stays awake. */
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

/* Hypervisors deschedule a guest that executes many `pause` in a row, so none is used. */
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

/* Put an item into the box; its owner is woken if it sleeps. */
void post(struct box *box) {
  atomic_fetch_add(&box->posts, 1);
  if (!atomic_load(&box->awake)) ring(box);
}

/* Post to an owner that is awake and needs a resource the caller has released; leave it 1 us to acquire it. */
void hand_over(struct box *box) {
  post(box);
  for (int64_t until = now_ns() + 1000; now_ns() < until;) relax();
}

/* Keep the owner awake from `from` until `until`, unless an item arrives before. */
void expect(struct box *box, int64_t from, int64_t until) {
  atomic_store(&box->from, from);
  atomic_store(&box->until, until);
  if (!atomic_load(&box->awake)) ring(box);
}

/* Wait until the number of posts differs from `seen`; returns it. */
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
