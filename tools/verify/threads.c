/* One thread per task: threads LENGTH_NS [NAME WCET_NS PERIOD_NS DEADLINE_NS]...

   Prints "NAME TID" for each thread, waits for a line on standard input, releases every thread at a common instant and
   then each PERIOD_NS for LENGTH_NS, computes WCET_NS of its own CPU time per frame, and prints "NAME MISSES". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct task {
  const char *name;
  long long wcet, period, deadline;
  long tid, misses;
};

static pthread_barrier_t ready, go;
static long long length, start;

static long long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *body(void *argument) {
  struct task *task = argument;
  task->tid = syscall(SYS_gettid);
  pthread_barrier_wait(&ready);
  pthread_barrier_wait(&go);
  for (long long at = 0; at + task->deadline <= length; at += task->period) {
    struct timespec t = {(start + at) / 1000000000LL, (start + at) % 1000000000LL};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    long long until = now(CLOCK_THREAD_CPUTIME_ID) + task->wcet;
    while (now(CLOCK_THREAD_CPUTIME_ID) < until) {
    }
    task->misses += now(CLOCK_MONOTONIC) > start + at + task->deadline;
  }
  return NULL;
}

int main(int count, char **words) {
  int tasks = (count - 2) / 4;
  if (count < 6 || (count - 2) % 4) return 2;
  length = atoll(words[1]);
  struct task *all = calloc(tasks, sizeof *all);
  pthread_t *threads = calloc(tasks, sizeof *threads);
  pthread_barrier_init(&ready, NULL, tasks + 1);
  pthread_barrier_init(&go, NULL, tasks + 1);
  (void)mlockall(MCL_CURRENT | MCL_FUTURE);
  for (int i = 0; i < tasks; i++) {
    char **word = words + 2 + 4 * i;
    all[i] = (struct task){word[0], atoll(word[1]), atoll(word[2]), atoll(word[3]), 0, 0};
    if (pthread_create(&threads[i], NULL, body, &all[i])) return 3;
  }
  pthread_barrier_wait(&ready);
  for (int i = 0; i < tasks; i++) printf("%s %ld\n", all[i].name, all[i].tid);
  fflush(stdout);
  (void)getchar();
  start = now(CLOCK_MONOTONIC) + 50000000;
  pthread_barrier_wait(&go);
  for (int i = 0; i < tasks; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < tasks; i++) printf("%s %ld\n", all[i].name, all[i].misses);
  return 0;
}
