/* How long a job waits for processors that it shares, equal to `Interference` of published/several_processors.py, whose
   names these have.  Times are ns. */

#include "common.h"

/* The order of the fields is that of `several_processors.Tables`. */
typedef struct {
  const i64 *wcet, *period, *ahead, *slack;
  i64 *delays;
  i64 count, own, processors, carriers, deadline, itself, limit, plain;
} Tables;

/* begun, done: of each task, jobs * period and jobs * wcet for the window before; most: what it may do under EDF;
   more: the most that carried-in jobs add, of `carriers` tasks, least first. */
typedef struct { i64 *begun, *done, *most, *more; } State;

static void due_within(const Tables *t, const State *s) {
  for (i64 n = 0; n < t->count; n++) {
    if (t->deadline < 0) {
      s->most[n] = INT64_MAX;
      continue;
    }
    i64 jobs = t->deadline / t->period[n], rest = t->deadline - jobs * t->period[n] - t->slack[n];
    s->most[n] = n == t->itself ? 0 : jobs * t->wcet[n] + least_of(t->wcet[n], rest > 0 ? rest : 0);
  }
}

static i64 carry_in(const Tables *t, const State *s, i64 n, i64 window) {
  i64 rest = window + t->ahead[n] - s->begun[n];
  if (rest < 0 || rest >= t->period[n]) { /* a division only where the window has passed a period's border */
    i64 jobs = (window + t->ahead[n]) / t->period[n];
    s->begun[n] = jobs * t->period[n], s->done[n] = jobs * t->wcet[n];
    rest = window + t->ahead[n] - s->begun[n];
  }
  return least_of(s->done[n] + least_of(t->wcet[n], rest), s->most[n]);
}

static i64 need(const Tables *t, const State *s, i64 window) {
  i64 total = 0, room = window - t->own + 1, kept = 0;
  for (i64 n = 0; n < t->count; n++) {
    i64 work = least_of(carry_in(t, s, n, window), room);
    t->delays[n] = work;
    if (t->carriers < 0) {
      total += work;
      continue;
    }
    i64 jobs = window / t->period[n];
    i64 without = least_of(jobs * t->wcet[n] + least_of(t->wcet[n], window - jobs * t->period[n]), room);
    i64 more = work - without, at;
    total += without;
    if (more <= 0 || (kept == t->carriers && (!kept || more <= s->more[0]))) continue;
    if (kept < t->carriers) { /* least first: the place is found from above, the smaller ones move down, or the least leaves */
      for (at = kept++; at > 0 && s->more[at - 1] > more; at--) s->more[at] = s->more[at - 1];
    } else {
      for (at = 0; at + 1 < kept && s->more[at + 1] < more; at++) s->more[at] = s->more[at + 1];
    }
    s->more[at] = more;
  }
  for (i64 n = 0; n < kept; n++) total += s->more[n];
  return t->own + total / t->processors;
}

/* The window, -1 without one within the limit, -2 without memory. */
i64 socsched_settle(const Tables *t) {
  i64 *room = malloc((size_t)(3 * t->count + (t->carriers > 0 ? t->carriers : 0) + 1) * sizeof(i64));
  if (!room) return -2;
  State s = {room, room + t->count, room + 2 * t->count, room + 3 * t->count};
  for (i64 n = 0; n < t->count; n++) s.begun[n] = s.done[n] = 0;
  due_within(t, &s);
  i64 window = t->own, steps = 0, longer, none = 0;
  while (!none && (longer = need(t, &s, window)) > window && !socsched_late()) {
    i64 leap = window + (window - t->own) / 100;
    steps++;
    window = steps < t->plain || longer > leap ? longer : leap;
    if (window > t->limit) none = longer > t->limit || need(t, &s, t->limit) > t->limit, window = t->limit;
  }
  for (i64 n = 0; !none && n < (steps >= t->plain ? t->plain : 0); n++) {
    i64 shorter = need(t, &s, window);
    if (shorter >= window) break;
    window = shorter > t->own ? shorter : t->own;
  }
  if (!none && window <= t->limit) need(t, &s, window);
  free(room);
  return none || window > t->limit ? -1 : window;
}
