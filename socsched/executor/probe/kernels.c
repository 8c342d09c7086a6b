/* Times of kernels: a list of calls runs again and again on one or several threads, and every call is a sample.

   A sample has the wall time of a call and the processor time that all threads had meanwhile.  Helpers of a running
   slice never sleep, so that the two agree unless something else had a processor: what disturbed a call shows in the call
   itself.  Kernels follow one another as in a network, so that each finds the caches as its predecessors left them.

   What shares a virtual processor's core shows in no processor time: a chain of additions before and after every slice
   does, which then takes twice as long, as kernels do.  Calls of such a slice have negative processor times.

   Calls are made in slices.  Beside other programs a thread that has slept gets a processor at once and for a few
   milliseconds; one that computes all the time shares it.  So threads sleep between slices where calls are disturbed, the
   longer the more often, and a slice begins with the call before, whose data other programs have driven out of the caches.

   Whoever waits for another thread spins for as long as hand-overs take, and then gives its processor to whoever waits
   for it there: threads that outnumber the processors, or those of another program that measures, must not hold up the
   one that is waited for.  A machine that is too busy for the samples asked for ends the calls at the limit of time.

   Chunks are taken from a counter, as in executor/native/parallel.cpp. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 512
#define MOST_BLOCKS 8
#define CHUNKS 8 /* of a thread, in a kernel that does not demand a number */
#define ALIGNMENT 64
#define PAGE 4096
#define SLICE 1000000       /* ns that a slice lasts, and the call more that ends it */
#define LEAST_PAUSE 500000  /* ns of sleep between slices once one was disturbed */
#define MOST_PAUSE 8000000
#define SPINS 2000 /* turns of waiting, some 50 us, before the processor is given away */
#define DISTURBED 97        /* per cent of their time that threads of an undisturbed slice have at least */
#define CHAIN 6000          /* additions, some 2 us */
#define SHARED 140          /* per cent of its least time that the chain takes at most on a core of one's own */

typedef struct {
  int32_t type_index;
  uint32_t padding;
  void* pointer;
} Any;
typedef int (*Kernel)(void*, const Any*, int32_t, Any*);
typedef struct {
  void* sync;
  int32_t chunks;
} Group;
typedef int (*Chunk)(int, Group*, void*);
typedef struct {
  Kernel kernel;
  const Any* arguments;
  int64_t count;
} Call;

static int threads = 1; /* that compute a call */
static int all = 1;     /* and the one that computes something else meanwhile */
static const Call* beside_call;
static pthread_t helpers[MOST_THREADS];
static clockid_t clocks[MOST_THREADS];
/* Every thread has a part of a kernel's chunks, always the same, so that it finds in its cache what it wrote there. */
static struct {
  _Alignas(ALIGNMENT) _Atomic uint64_t next; /* round << 32 | chunk */
} parts[MOST_THREADS];
static _Alignas(ALIGNMENT) _Atomic int left_chunks;
static _Alignas(ALIGNMENT) _Atomic int chunk_count;
static _Atomic int stop, present;
static _Atomic uint32_t awake; /* odd: helpers compute, even: they sleep */
static _Atomic(Chunk) chunk_code;
static _Atomic(void*) chunk_context;

static int64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t least_chain[2] = {INT32_MAX, INT32_MAX}; /* on one thread and on several, which may share cores */

/* Add numbers, each time waiting for the sum before. */
static uint64_t add(int64_t count) {
  uint64_t value = 1;
  for (; count > 0; count--) {
    value += (uint64_t)count;
    __asm__ __volatile__("" : "+r"(value));
  }
  return value;
}

/* Return whether nothing else computes on this thread's core, as far as has been seen. */
int socsched_is_alone(void) {
  const int64_t start = now(CLOCK_MONOTONIC);
  add(CHAIN);
  const int64_t time = now(CLOCK_MONOTONIC) - start;
  int64_t* const least = &least_chain[threads > 1];
  if (time < *least) *least = time;
  return time <= *least * SHARED / 100;
}

/* Wait another turn; `turns` counts those since something was found. */
static void relax(int* turns) {
  if (*turns == SPINS) {
    sched_yield();
    return;
  }
  ++*turns;
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* Compute a chunk of a thread's part; return 0 if none is left.  Whatever was read belongs to the round if the exchange
   succeeds. */
static int take_of(int part, int* done) {
  uint64_t next = atomic_load(&parts[part].next);
  Group group = {0, atomic_load(&chunk_count)};
  const Chunk code = atomic_load(&chunk_code);
  void* const context = atomic_load(&chunk_context);
  const int number = (int)(uint32_t)next;
  if (number >= (int64_t)group.chunks * (part + 1) / threads) return 0;
  if (!atomic_compare_exchange_strong(&parts[part].next, &next, next + 1)) return 1;
  code(number, &group, context);
  ++*done;
  return 1;
}

/* Compute chunks, one's own first and then what others have left; return 0 if there were none. */
static int take(int seat) {
  int done = 0;
  for (int i = 0; i < threads; i++)
    while (take_of((seat + i) % threads, &done)) {
    }
  if (done) atomic_fetch_sub(&left_chunks, done);
  return done;
}

static int launch(Chunk chunk, void* context, int chunks) {
  if (threads == 1) {
    Group group = {0, 1};
    return chunk(0, &group, context);
  }
  const int count = chunks > 0 ? chunks : CHUNKS * threads;
  const uint64_t round = (atomic_load(&parts[0].next) >> 32) + 1;
  for (int i = 0; i < threads; i++) atomic_store(&parts[i].next, round << 32 | INT32_MAX);
  atomic_store(&chunk_code, chunk);
  atomic_store(&chunk_context, context);
  atomic_store(&chunk_count, count);
  atomic_store(&left_chunks, count);
  for (int i = 0; i < threads; i++) atomic_store(&parts[i].next, round << 32 | (uint32_t)((int64_t)count * i / threads));
  take(0);
  for (int turns = 0; atomic_load(&left_chunks) > 0;) relax(&turns);
  return 0;
}

/* Take a processor, before everything else on it where that is permitted, in turns with others that do so. */
static void pin(pthread_t thread, int cpu) {
  const struct sched_param first = {.sched_priority = 1};
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  pthread_setaffinity_np(thread, sizeof set, &set);
  pthread_setschedparam(thread, SCHED_RR, &first);
}

static void futex(int operation, uint32_t value) { syscall(SYS_futex, (uint32_t*)&awake, operation, value, 0, 0, 0); }

static int call_of(const Call* call) {
  Any result = {0};
  return call->kernel(0, call->arguments, (int32_t)call->count, &result);
}

static void* help(void* given) {
  const int seat = (int)(intptr_t)given;
  const Call* const beside = seat < threads ? 0 : beside_call;
  for (;;) {
    const uint32_t state = atomic_load(&awake);
    if (atomic_load(&stop)) return 0; /* read last: `stop` is set before `awake` changes and nobody is woken again */
    if (!(state & 1)) {
      futex(FUTEX_WAIT_PRIVATE, state);
      continue;
    }
    atomic_fetch_add(&present, 1);
    int turns = 0;
    while (atomic_load_explicit(&awake, memory_order_relaxed) == state) {
      if (beside)
        call_of(beside);
      else if (take(seat))
        turns = 0;
      else
        relax(&turns);
    }
    atomic_fetch_sub(&present, 1);
  }
}

/* Wake the helpers; return 0 if they have got no processor until `limit`. */
static int begin_slice(int64_t pause, int64_t limit) {
  const struct timespec time = {0, (long)pause};
  if (pause) clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0);
  if (all == 1) return 1;
  atomic_fetch_add(&awake, 1);
  futex(FUTEX_WAKE_PRIVATE, INT32_MAX);
  for (int turns = 0; atomic_load(&present) < all - 1; relax(&turns))
    if (turns == SPINS && now(CLOCK_MONOTONIC) > limit) return 0;
  return 1;
}

static void end_slice(void) {
  if (all == 1) return;
  atomic_fetch_add(&awake, 1);
  for (int turns = 0; atomic_load(&present) > 0;) relax(&turns);
}

static _Thread_local struct {
  void* memory;
  uint64_t bytes;
  int taken;
} blocks[MOST_BLOCKS];

static void* take_workspace(int type, int device, uint64_t bytes, int code, int bits) {
  (void)type, (void)device, (void)code, (void)bits;
  int spare = -1;
  for (int i = 0; i < MOST_BLOCKS; i++) {
    if (blocks[i].taken) continue;
    if (blocks[i].memory && blocks[i].bytes >= bytes) {
      blocks[i].taken = 1;
      return blocks[i].memory;
    }
    if (spare < 0 || !blocks[i].memory) spare = i;
  }
  if (spare < 0) return 0;
  free(blocks[spare].memory);
  blocks[spare].memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  blocks[spare].bytes = blocks[spare].memory ? bytes : 0;
  blocks[spare].taken = blocks[spare].memory != 0;
  return blocks[spare].memory;
}

static int return_workspace(int type, int device, void* memory) {
  (void)type, (void)device;
  for (int i = 0; i < MOST_BLOCKS; i++)
    if (blocks[i].memory == memory) blocks[i].taken = 0;
  return 0;
}

static int64_t processor_time(void) {
  int64_t sum = now(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 1; i < all; i++) sum += now(clocks[i]);
  return sum;
}

/* Called by kernels whose arguments do not fit. */
void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  (void)kind, (void)parts, (void)count;
}

/* Give a library of kernels what it calls. */
void socsched_supply(void* library) {
  void** slot;
  if ((slot = dlsym(library, "__TVMBackendParallelLaunch"))) *slot = (void*)launch;
  if ((slot = dlsym(library, "__TVMBackendAllocWorkspace"))) *slot = (void*)take_workspace;
  if ((slot = dlsym(library, "__TVMBackendFreeWorkspace"))) *slot = (void*)return_workspace;
}

/* Calls of the probe's own: a chain of additions, each of which waits for the one before; copies, reads and writes. */
int socsched_chain(void* self, const Any* arguments, int32_t count, Any* result) {
  (void)self, (void)count, (void)result;
  return add(*(const int64_t*)arguments->pointer) == 0;
}

static int copy_chunk(int number, Group* group, void* context) {
  const int64_t* const copy = context; /* from, to, bytes */
  const int64_t size = copy[2] / group->chunks & ~(int64_t)63;
  memcpy((char*)copy[1] + number * size, (const char*)copy[0] + number * size, (size_t)size);
  return 0;
}

/* Touch a block page by page in turns: the channels of an image and the rows of a matrix are not divided as the kernel
   before has divided them.  An operand is written anew, so that a thread finds half of what it reads in another's cache.
   A result lies where another stage's operand lay: others have read a part of what a thread writes, and have to give it
   up, which takes several times as long as to hand a line over.  Half of such operands have one reader only. */
static int renew_chunk(int number, Group* group, void* context) {
  const int64_t* const block = context; /* at, is a result, bytes */
  volatile char* const at = (volatile char*)block[0];
  const int64_t step = (int64_t)group->chunks * PAGE * (1 + block[1]);
  for (int64_t page = (int64_t)number * PAGE; page < block[2]; page += step)
    for (int64_t i = page; i < page + PAGE && i < block[2]; i += 64)
      if (block[1])
        (void)at[i];
      else
        at[i] = at[i];
  return 0;
}

int socsched_renew(void* self, const Any* arguments, int32_t count, Any* result) {
  (void)self, (void)result;
  for (int i = 0; i < count; i++)
    if (threads > 1 || !((const int64_t*)arguments[i].pointer)[1]) launch(renew_chunk, arguments[i].pointer, 0);
  return 0;
}

static int no_chunk(int number, Group* group, void* context) {
  (void)number, (void)group, (void)context;
  return 0;
}

/* Have every thread compute nothing. */
int socsched_hand_over(void* self, const Any* arguments, int32_t count, Any* result) {
  (void)self, (void)arguments, (void)count, (void)result;
  return launch(no_chunk, 0, threads);
}

static int read_chunk(int number, Group* group, void* context) {
  const int64_t* const copy = context;
  const int64_t size = copy[2] / group->chunks & ~(int64_t)63;
  const uint64_t* const from = (const uint64_t*)((const char*)copy[0] + number * size);
  uint64_t sum = 0;
  for (int64_t i = 0; i < size / 8; i++) sum += from[i];
  __asm__ __volatile__("" : : "r"(sum));
  return 0;
}

int socsched_read(void* self, const Any* arguments, int32_t count, Any* result) {
  (void)self, (void)count, (void)result;
  return launch(read_chunk, arguments->pointer, 0);
}

int socsched_copy(void* self, const Any* arguments, int32_t count, Any* result) {
  (void)self, (void)count, (void)result;
  return launch(copy_chunk, arguments->pointer, 0);
}

/* Run `count` calls in order, again until `budget` ns have passed and `least` rounds are done, at most `most` rounds and
   not beyond `limit` ns (longer where slices were disturbed), on a thread a processor of `cpus`; where `beside` is not null, the last of them repeats that
   call meanwhile.  wall[round * count + call] and used[...] are in ns.  Return the number of whole rounds, or -1 - n where
   call n failed. */
int64_t socsched_time_calls(const Call* calls, int64_t count, const int32_t* cpus, int32_t cpu_count, int64_t budget,
                            int64_t limit, int64_t least, int64_t most, const Call* beside, int64_t* wall, int64_t* used) {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  struct sched_param priority;
  const int policy = sched_getscheduler(0);
  sched_getparam(0, &priority);
  all = cpu_count < MOST_THREADS ? cpu_count : MOST_THREADS;
  threads = beside ? all - 1 : all;
  beside_call = beside;
  int64_t failed = 0;
  atomic_store(&stop, 0);
  atomic_store(&chunk_count, 0); /* the parts of threads that the calls before did not have hold old chunks */
  for (int i = 1; i < all; i++) {
    pthread_create(&helpers[i], 0, help, (void*)(intptr_t)i);
    pin(helpers[i], cpus[i]);
    pthread_getcpuclockid(helpers[i], &clocks[i]);
  }
  pin(pthread_self(), cpus[0]); /* last: helpers begin where this thread is */
  for (int i = 0; i < 2; i++) least_chain[i] += least_chain[i] / 64; /* clocks may have become lower */
  int64_t rounds = 0, pause = 0, slices = 0, fine = 0;
  const int64_t begin = now(CLOCK_MONOTONIC), end = begin + budget, last_end = begin + limit;
  const int64_t later = end + (limit - budget) / 4; /* where slices were disturbed */
  while (rounds < most &&
         now(CLOCK_MONOTONIC) < (rounds < least ? last_end : rounds * fine < least * slices ? later : end)) {
    int64_t i = 0;
    while (i < count && now(CLOCK_MONOTONIC) < last_end) {
      if (!begin_slice(pause, last_end)) {
        end_slice();
        break;
      }
      call_of(&calls[(i + count - 1) % count]);
      int alone = socsched_is_alone();
      const int64_t first = i, had = processor_time(), start = now(CLOCK_MONOTONIC);
      int64_t time = start, processor = had;
      do {
        const int64_t at = rounds * count + i;
        if (call_of(&calls[i])) failed = -1 - i;
        const int64_t last = time, before_call = processor;
        wall[at] = (time = now(CLOCK_MONOTONIC)) - last;
        used[at] = (processor = processor_time()) - before_call;
        i++;
      } while (i < count && time - start < SLICE);
      alone &= socsched_is_alone();
      end_slice();
      if (!alone)
        for (int64_t at = rounds * count + first; at < rounds * count + i; at++) used[at] = -used[at];
      const int lacked = processor - had < (time - start) * all / 100 * DISTURBED;
      slices++;
      fine += alone && !lacked;
      if (lacked) /* no pause changes who shares a core */
        pause = pause ? pause * 2 < MOST_PAUSE ? pause * 2 : MOST_PAUSE : LEAST_PAUSE;
      else
        pause = pause < LEAST_PAUSE ? 0 : pause * 9 / 10;
    }
    rounds += i == count;
  }
  atomic_store(&stop, 1);
  atomic_fetch_add(&awake, 2);
  futex(FUTEX_WAKE_PRIVATE, INT32_MAX);
  for (int i = 1; i < all; i++) pthread_join(helpers[i], 0);
  threads = all = 1;
  sched_setaffinity(0, sizeof before, &before);
  sched_setscheduler(0, policy, &priority);
  return failed ? failed : rounds;
}
