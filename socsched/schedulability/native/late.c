/* The end of the time that a call has: loops ask, and leave; what they return then is of no use.  By thread. */

#define _POSIX_C_SOURCE 199309L
#include <time.h>

static _Thread_local double until;
static _Thread_local int limited, passed;

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* Sets the time (s) from now on; infinite for no limit. */
void socsched_limit(double seconds) {
  limited = seconds < 1e9, passed = 0;
  if (limited) until = now() + seconds;
}

int socsched_late(void) {
  if (limited && !passed) passed = now() >= until;
  return passed;
}

/* Whether a loop has left early since the limit was set. */
int socsched_left(void) { return passed; }
