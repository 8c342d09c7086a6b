/* Response times over flat tables, equal to the nanosecond to the functions of schedulability/response_times.py,
   holistic.py and published/earliest_deadline_first.py, whose names these have; the reasons are there.  Times are ns. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;

#define NONE INT64_MIN

extern int socsched_late(void); /* late.c */

static i64 least_of(i64 a, i64 b) { return a < b ? a : b; }
static i64 most_of(i64 a, i64 b) { return a > b ? a : b; }
static i64 floor_div(i64 a, i64 b) { return a / b - (a % b < 0); }
static i64 ceil_div(i64 a, i64 b) { return -floor_div(-a, b); }

/* -- EDF on one processor */

typedef struct { i64 wcet, period, deadline, jitter, segment; } Task;
typedef struct { i64 arrival, blocked, length, earlier; } Busy;

static i64 busy_period(const Task *tasks, i64 count, i64 steps) {
  i64 first = 0;
  for (i64 n = 0; n < count; n++) first = most_of(first, tasks[n].segment);
  i64 length = first;
  for (i64 n = 0; n < count; n++) length += tasks[n].wcet;
  for (i64 step = 0; step < steps && !socsched_late(); step++) {
    i64 longer = first;
    for (i64 n = 0; n < count; n++) longer += ceil_div(length + tasks[n].jitter, tasks[n].period) * tasks[n].wcet;
    if (longer == length) return length;
    length = longer;
  }
  return NONE;
}

static int by_value(const void *a, const void *b) {
  i64 x = *(const i64 *)a, y = *(const i64 *)b;
  return (x > y) - (x < y);
}

static Busy busy_of(const Task *tasks, i64 count, i64 mine, i64 arrival, int whole, Busy before) {
  const Task *task = tasks + mine;
  i64 due = arrival + task->deadline, earlier = floor_div(arrival + task->jitter, task->period), blocked = 0;
  for (i64 n = 0; n < count; n++)
    if (n != mine && tasks[n].deadline > due) blocked = most_of(blocked, tasks[n].segment);
  i64 least = blocked + earlier * task->wcet + (whole ? 0 : task->wcet);
  i64 length = most_of(least, before.blocked == blocked ? before.length : 0);
  for (;;) {
    i64 longer = least;
    if (socsched_late()) return (Busy){arrival, blocked, length, earlier};
    for (i64 n = 0; n < count; n++) {
      const Task *o = tasks + n;
      if (n == mine || o->deadline - o->jitter > due) continue;
      i64 most = floor_div(due - o->deadline + o->jitter, o->period) + 1, until = length + o->jitter;
      longer += least_of(whole ? floor_div(until, o->period) + 1 : ceil_div(until, o->period), most) * o->wcet;
    }
    if (longer <= length) return (Busy){arrival, blocked, length, earlier};
    length = longer;
  }
}

/* `response_rows` but for its terms: fills the response of every task, NONE where there are more than `work` arrivals
   times tasks, and its busy period.  Returns 0, or -1 without memory. */
int socsched_edf(const Task *tasks, i64 count, int whole, i64 work, i64 steps, i64 *values, Busy *longest) {
  i64 busy = busy_period(tasks, count, steps), arrivals = 0, *instants;
  for (i64 n = 0; n < count; n++) values[n] = NONE;
  if (busy == NONE) return 0;
  for (i64 n = 0; n < count; n++) arrivals += busy / tasks[n].period + 1;
  if (arrivals > work / (count * count)) return 0;
  i64 room = 0;
  for (i64 n = 0; n < count; n++) room = most_of(room, tasks[n].jitter + most_of(tasks[n].deadline, 0));
  i64 most = 0;
  for (i64 n = 0; n < count; n++) most += (busy + room) / tasks[n].period + 2;
  instants = malloc(sizeof(i64) * most);
  if (!instants) return -1;
  for (i64 mine = 0; mine < count && !socsched_late(); mine++) {
    const Task *task = tasks + mine;
    i64 found = 0, worst = -1;
    for (i64 n = 0; n < count; n++) {
      i64 first = n == mine ? -task->jitter : tasks[n].deadline - tasks[n].jitter - task->deadline;
      if (n != mine) first += most_of(ceil_div(-task->jitter - first, tasks[n].period), 0) * tasks[n].period;
      for (i64 at = first; at < busy; at += tasks[n].period) instants[found++] = at;
    }
    qsort(instants, found, sizeof(i64), by_value);
    Busy before = {0, 0, 0, 0};
    longest[mine] = before;
    for (i64 n = 0; n < found && !socsched_late(); n++) {
      if (n && instants[n] == instants[n - 1]) continue;
      if (task->wcet && busy - instants[n] <= worst) break;
      before = busy_of(tasks, count, mine, instants[n], whole, before);
      i64 value = most_of(before.length + (whole ? task->wcet : 0) - before.arrival, task->jitter + task->wcet);
      if (value > worst) worst = value, longest[mine] = before;
    }
    values[mine] = worst;
  }
  free(instants);
  return 0;
}

/* -- fixed priorities, holistic */

/* The order of the fields is that of `native_responses.Tables`. */
typedef struct {
  const i64 *wcet, *period, *offset, *release_jitter, *segment, *change, *priority, *width, *lanes, *whole;
  const i64 *group, *first_of_group, *tasks_of_group, *single, *full, *first_after, *after, *endless;
  const uint64_t *apart; /* by task and task, bits */
  const uint8_t *overlap;
  i64 *finish, *value, *bounded, *way, *frame, *window;
  i64 tasks, words, sets, horizon;
} Tables;

/* How others delay a task: `classic` by arrivals, `gang` by jobs that have not ended. */
enum { CLASSIC, GANG, START };
typedef struct { i64 value, bounded, way, frame, window; } Answer;
typedef struct { i64 late, period, wcet; } Delay;
typedef struct {
  const Tables *t;
  i64 task, *jitter;
  i64 *rivals, n_rivals; /* that keep it from running */
  i64 *events, n_events; /* whose arrivals and completions may preempt */
  Delay *delays;         /* of the rivals, in one way */
} Case;

/* The rivals as they delay in one way: by jobs that arrive late, or that may end as late as is known. */
static void look(Case *c, int way) {
  const Tables *t = c->t;
  for (i64 n = 0; n < c->n_rivals; n++) {
    i64 o = c->rivals[n], late = way == CLASSIC ? c->jitter[o] : most_of(t->finish[o] - t->wcet[o], 0);
    i64 more = way == CLASSIC ? t->change[o] : c->events == c->rivals ? 2 * t->width[c->task] * t->change[c->task] : 0;
    c->delays[n] = (Delay){late, t->period[o], t->wcet[o] + more};
  }
}

static i64 inside(const Case *c, int way, i64 window) {
  const Tables *t = c->t;
  i64 total = 0, events = 0;
  for (i64 n = 0; n < c->n_rivals; n++) {
    Delay d = c->delays[n];
    total += ceil_div(window + d.late, d.period) * d.wcet;
  }
  if (way == CLASSIC || c->events == c->rivals) return total;
  for (i64 n = 0; n < c->n_events; n++) {
    i64 o = c->events[n];
    events += ceil_div(window + most_of(t->finish[o] - t->wcet[o], 0), t->period[o]);
  }
  return total + 2 * events * t->width[c->task] * t->change[c->task];
}

/* A window that no fixed point is below: rivals delay at least by their share of the processor.  0 where none may be
   within the horizon, which steps have to find out. */
static i64 at_least(const Case *c, i64 own) {
  double used = 0, begun = (double)own;
  for (i64 n = 0; n < c->n_rivals; n++) {
    double share = (double)c->delays[n].wcet / (double)c->delays[n].period;
    used += share, begun += share * (double)c->delays[n].late;
  }
  double window = used < 1 ? begun / (1 - used) * (1 - 1e-9) - 2 : 0;
  return window < (double)c->t->horizon ? (i64)window : 0;
}

static Answer preemptive(Case *c, int way, i64 blocking) {
  const Tables *t = c->t;
  i64 wcet = t->wcet[c->task], period = t->period[c->task], jitter = c->jitter[c->task], window = 0;
  Answer worst = {-1, 1, way, 0, 0};
  look(c, way);
  for (i64 frame = 0;; frame++) {
    i64 own = blocking + (frame + 1) * wcet, begin = most_of(window, own), longer;
    i64 at = most_of(begin, at_least(c, own));
    for (;;) {
      longer = own + inside(c, way, at);
      if (longer > t->horizon && begin < at) at = begin, begin = t->horizon; /* what is no bound is where steps end */
      else if (longer <= at || longer > t->horizon || socsched_late()) break;
      else at = longer;
    }
    window = longer;
    i64 value = jitter + window - frame * period;
    if (value > worst.value) worst = (Answer){value, 1, way, frame, at};
    if (window > t->horizon || socsched_late()) return (Answer){value, 0, way, frame, at};
    if (window <= (frame + 1) * period - jitter) return worst;
  }
}

static Answer until_start(const Case *c, i64 blocking) {
  const Tables *t = c->t;
  i64 task = c->task, wcet = t->wcet[task], period = t->period[task], limit = t->horizon, busy = blocking + wcet;
  while (busy <= limit && !socsched_late()) {
    i64 longer = blocking + ceil_div(busy + c->jitter[task], period) * wcet;
    for (i64 n = 0; n < c->n_rivals; n++) {
      i64 o = c->rivals[n];
      longer += ceil_div(busy + c->jitter[o], t->period[o]) * t->wcet[o];
    }
    i64 stop = longer <= busy;
    busy = longer;
    if (stop) break;
  }
  i64 frames = most_of(ceil_div(least_of(busy, limit) + c->jitter[task], period), 1), start = 0;
  Answer worst = {-1, 1, START, 0, 0};
  for (i64 frame = 0; frame < frames && !socsched_late(); frame++) {
    i64 before = frame * wcet, at = most_of(start, blocking + before), later;
    for (;;) {
      later = blocking + before;
      for (i64 n = 0; n < c->n_rivals; n++) {
        i64 o = c->rivals[n];
        later += (floor_div(at + c->jitter[o], t->period[o]) + 1) * t->wcet[o];
      }
      if (later <= at || later > limit || socsched_late()) break;
      at = later;
    }
    start = later;
    i64 value = c->jitter[task] + start + wcet - frame * period;
    if (value > worst.value) worst = (Answer){value, 1, START, frame, at};
    if (start > limit) return (Answer){value, 0, START, frame, at};
  }
  worst.bounded = busy <= limit;
  return worst;
}

static int is_apart(const Tables *t, i64 task, i64 other) {
  return t->apart[task * t->words + other / 64] >> (other % 64) & 1;
}

static i64 longest_blocking(const Tables *t, i64 task, int without) {
  i64 group = t->group[task], found = 0;
  for (i64 n = t->first_of_group[group]; n < t->first_of_group[group + 1]; n++) {
    i64 o = t->tasks_of_group[n];
    if (o != task && t->segment[o] && t->priority[o] > t->priority[task] && !(without && is_apart(t, task, o)))
      found = most_of(found, t->segment[o] + t->change[o]);
  }
  return found;
}

static Answer respond(const Tables *t, i64 task, i64 *jitter, i64 *rivals, i64 *events, Delay *delays) {
  Case c = {t, task, jitter, rivals, 0, events, 0, delays};
  i64 group = t->group[task], begin = t->first_of_group[group], end = t->first_of_group[group + 1], near = 0;
  int whole = t->whole[task], single = t->single[group], full = t->full[task];
  for (i64 n = begin; n < end; n++) {
    i64 o = t->tasks_of_group[n];
    if (o == task) continue;
    int above = t->priority[o] < t->priority[task], apart = is_apart(t, task, o);
    near += apart;
    if (single) {
      if (above) rivals[c.n_rivals++] = o;
      continue;
    }
    if (full && !above) continue;
    events[c.n_events++] = o;
    if (!apart && t->overlap[t->lanes[o] * t->sets + t->lanes[task]]) rivals[c.n_rivals++] = o;
  }
  if (!single) return preemptive(&c, GANG, 0);
  i64 blocking = longest_blocking(t, task, 0);
  Answer found = whole ? until_start(&c, blocking) : preemptive(&c, CLASSIC, blocking);
  if (near) {
    i64 kept = 0;
    for (i64 n = 0; n < c.n_rivals; n++)
      if (!is_apart(t, task, rivals[n])) rivals[kept++] = rivals[n];
    c.n_rivals = c.n_events = kept;
    c.events = rivals;
    Answer other = preemptive(&c, GANG, longest_blocking(t, task, 1));
    if (other.bounded > found.bounded || (other.bounded == found.bounded && other.value < found.value)) found = other;
  }
  return found;
}

static i64 latest(const Tables *t, i64 task) {
  i64 found = t->release_jitter[task];
  for (i64 n = t->first_after[task]; n < t->first_after[task + 1]; n++)
    found = most_of(found, t->finish[t->after[n]] + t->offset[t->after[n]] - t->offset[task]);
  return found;
}

/* Notes that a task's activation or end has changed: on one processor, what has a higher priority does not rest on it. */
static void change(const Tables *t, i64 *dirty, i64 task) {
  i64 group = t->group[task];
  dirty[group] = t->single[group] ? least_of(dirty[group], t->priority[task]) : NONE;
}

/* The finish times at which those of `_iterate` no longer grow.  A round goes through the tasks and lets each meet what
   those before it have grown to; it computes answers that may have changed: of priorities from `dirty` on, by group,
   since the last round or in this one. */
int socsched_holistic(const Tables *t) {
  i64 count = t->tasks, groups = 1;
  for (i64 task = 0; task < count; task++) groups = most_of(groups, t->group[task] + 1);
  i64 *room = malloc(sizeof(i64) * (6 * (count + 1) + 2 * groups));
  if (!room) return -1;
  i64 *jitter = room + 2 * (count + 1), *dirty = jitter + count + 1, *next = dirty + groups;
  Delay *delays = (Delay *)(next + groups);
  for (i64 group = 0; group < groups; group++) next[group] = NONE;
  for (i64 task = 0; task < count; task++) jitter[task] = latest(t, task);
  for (i64 grown = 1; grown && !socsched_late();) {
    grown = 0;
    for (i64 group = 0; group < groups; group++) dirty[group] = next[group], next[group] = INT64_MAX;
    for (i64 task = 0; task < count && !socsched_late(); task++) {
      i64 group = t->group[task], at = latest(t, task);
      if (at != jitter[task]) jitter[task] = at, grown = 1, change(t, next, task);
      if (t->endless[task] || t->priority[task] < least_of(dirty[group], next[group])) continue;
      Answer found = respond(t, task, jitter, room, room + count + 1, delays);
      t->value[task] = found.value, t->bounded[task] = found.bounded, t->way[task] = found.way;
      t->frame[task] = found.frame, t->window[task] = found.window;
      i64 value = found.bounded ? least_of(found.value, t->horizon) : t->horizon;
      if (value > t->finish[task]) t->finish[task] = value, grown = 1, change(t, next, task);
    }
  }
  free(room);
  return socsched_late() ? -1 : 0;
}
