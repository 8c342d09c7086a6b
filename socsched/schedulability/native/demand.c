/* The demand test of EDF over a whole plan, and the least factor on local deadlines that passes it, equal to the
   functions of schedulability/edf.py and published/earliest_deadline_first.py, whose names these have.  Times are ns. */

#include <math.h>

#include "common.h"

/* The order of the fields is that of `native_demand.Tables`. */
typedef struct {
  const i64 *wcet, *period, *offset, *release_jitter, *segment, *change, *width, *lanes, *order, *first_after, *after;
  const i64 *first_of_group, *tasks_of_group, *single, *full, *lane_count, *hopeless, *names;
  const uint8_t *overlap;
  i64 *base, *deadline;
  i64 tasks, groups, sets;
} Tables;

typedef struct { i64 wcet, period, window, deadline, segment; } Task;
typedef struct {
  const Tables *t;
  i64 *jitter, *passed, *steps; /* passed: deadlines and jitters of each group's tasks when it passed last */
  Task *tasks;
} State;

static i64 demand(const Task *tasks, i64 count, i64 interval) {
  i64 total = 0;
  for (i64 n = 0; n < count; n++)
    if (interval >= tasks[n].window) total += ((interval - tasks[n].window) / tasks[n].period + 1) * tasks[n].wcet;
  return total;
}

static i64 last_due(const Task *tasks, i64 count, i64 before) {
  i64 found = INT64_MIN;
  for (i64 n = 0; n < count; n++)
    if (tasks[n].window < before)
      found = most_of(found, before - 1 - (before - 1 - tasks[n].window) % tasks[n].period);
  return found;
}

static int is_overfull(const Task *tasks, i64 count, i64 low, i64 high, i64 blocked) {
  i64 interval = last_due(tasks, count, high + 1);
  while (interval != INT64_MIN && interval >= low) {
    if (socsched_late()) return 1;
    i64 need = demand(tasks, count, interval) + blocked;
    if (need > interval) return 1;
    interval = last_due(tasks, count, need == interval ? interval : need + 1);
  }
  return 0;
}

static i64 ended_busy_period(const Task *tasks, i64 count) {
  double used = 0;
  i64 start = 0, length = 0;
  for (i64 n = 0; n < count; n++) {
    used += (double)tasks[n].wcet / (double)tasks[n].period;
    start = most_of(start, tasks[n].segment);
    length += tasks[n].wcet;
  }
  if (used > 1 - 1e-9) return -1;
  length = most_of(start + length, 1);
  for (int step = 0; step < 100000 && !socsched_late(); step++) {
    i64 longer = start;
    for (i64 n = 0; n < count; n++)
      longer += ceil_div(length + most_of(tasks[n].deadline - tasks[n].window, 0), tasks[n].period) * tasks[n].wcet;
    if (longer <= length) return longer;
    length = longer;
  }
  return -1;
}

static int by_value(const void *a, const void *b) {
  i64 x = *(const i64 *)a, y = *(const i64 *)b;
  return (x > y) - (x < y);
}

static int overloaded(const Task *tasks, i64 count, i64 *steps) {
  for (i64 n = 0; n < count; n++)
    if (tasks[n].window < tasks[n].wcet) return 1;
  i64 horizon = ended_busy_period(tasks, count), found = 0;
  if (horizon < 0) return 1;
  steps[found++] = 0;
  for (i64 n = 0; n < count; n++)
    if (tasks[n].segment && tasks[n].deadline <= horizon) steps[found++] = tasks[n].deadline;
  steps[found++] = horizon + 1;
  qsort(steps, found, sizeof(i64), by_value);
  for (i64 n = found - 1; n > 0 && !socsched_late(); n--) {
    i64 low = steps[n - 1], blocked = 0;
    if (low == steps[n]) continue;
    for (i64 m = 0; m < count; m++)
      if (tasks[m].deadline > low) blocked = most_of(blocked, tasks[m].segment);
    if (is_overfull(tasks, count, low, steps[n] - 1, blocked)) return 1;
  }
  return 0;
}

static const Task *demand_tasks(State *s, const i64 *members, i64 count, i64 switches) {
  const Tables *t = s->t;
  for (i64 n = 0; n < count; n++) {
    i64 task = members[n], deadline = t->deadline[task];
    s->tasks[n] = (Task){t->wcet[task] + switches * t->change[task], t->period[task], deadline - s->jitter[task],
                         deadline, t->segment[task] ? t->segment[task] + t->change[task] : 0};
  }
  return s->tasks;
}

static int gangs_overloaded(State *s, const i64 *members, i64 count) {
  const Tables *t = s->t;
  const Task *plain = demand_tasks(s, members, count, 0);
  for (i64 n = 0; n < count; n++) {
    i64 task = members[n], window = most_of(plain[n].window, 0), events = 0;
    i64 earlier = most_of(ceil_div(plain[n].window + t->release_jitter[task], plain[n].period) - 1, 0);
    i64 need = plain[n].wcet + earlier * plain[n].wcet;
    for (i64 m = 0; m < count; m++) {
      i64 other = members[m];
      if (m == n) continue;
      events += ceil_div(window + plain[m].deadline + t->release_jitter[other], plain[m].period);
      if (!t->overlap[t->lanes[task] * t->sets + t->lanes[other]]) continue;
      if (plain[m].segment) {
        need += ceil_div(window + plain[m].deadline, plain[m].period) * plain[m].wcet;
        continue;
      }
      i64 span = window + t->release_jitter[other], whole = floor_div(span, plain[m].period);
      need += whole * plain[m].wcet + least_of(plain[m].wcet, span - whole * plain[m].period);
    }
    if (need + 2 * events * t->width[task] * t->change[task] > plain[n].window) return 1;
  }
  return 0;
}

static int group_passes(State *s, i64 group) {
  const Tables *t = s->t;
  i64 begin = t->first_of_group[group], count = t->first_of_group[group + 1] - begin, same = 1;
  const i64 *members = t->tasks_of_group + begin;
  i64 *passed = s->passed + 2 * begin;
  for (i64 n = 0; n < count && same; n++)
    same = passed[2 * n] == t->deadline[members[n]] && passed[2 * n + 1] == s->jitter[members[n]];
  if (same) return 1;
  int fails;
  if (t->single[group]) fails = overloaded(demand_tasks(s, members, count, 1), count, s->steps);
  else {
    fails = !t->full[group] || overloaded(demand_tasks(s, members, count, 2 * t->lane_count[group]), count, s->steps);
    if (fails) fails = gangs_overloaded(s, members, count);
  }
  if (fails) return 0;
  for (i64 n = 0; n < count; n++) passed[2 * n] = t->deadline[members[n]], passed[2 * n + 1] = s->jitter[members[n]];
  return 1;
}

static int passes(State *s) {
  const Tables *t = s->t;
  for (i64 n = 0; n < t->tasks; n++) {
    i64 task = t->order[n], latest = t->release_jitter[task];
    for (i64 m = t->first_after[task]; m < t->first_after[task + 1]; m++) {
      i64 other = t->after[m];
      latest = most_of(latest, t->deadline[other] + t->release_jitter[other] + t->offset[other] - t->offset[task]);
    }
    s->jitter[task] = latest;
  }
  for (i64 group = 0; group < t->groups; group++)
    if (!t->hopeless[group] && (socsched_late() || !group_passes(s, group))) return 0;
  return 1;
}

static int passes_by(State *s, double factor) {
  const Tables *t = s->t;
  for (i64 task = 0; task < t->tasks; task++)
    t->deadline[task] =
        t->names[task] ? most_of((i64)nearbyint((double)t->base[task] * factor), 1) : most_of(t->base[task], 1);
  return passes(s);
}

/* Returns the least factor on the deadlines `base` of the tasks in `names` found to pass by bisection, 0 if none up to
   64 does, -1 without memory; with `steps` < 0, 1 if the deadlines pass as they are, else 0. */
double socsched_factor(const Tables *t, i64 steps) {
  i64 tasks = t->tasks + 1;
  State s = {t, malloc(sizeof(i64) * tasks), malloc(sizeof(i64) * 2 * tasks), malloc(sizeof(i64) * (tasks + 2)),
             malloc(sizeof(Task) * tasks)};
  double high = -1;
  if (s.jitter && s.passed && s.steps && s.tasks) {
    for (i64 n = 0; n < 2 * tasks; n++) s.passed[n] = INT64_MIN;
    high = 1;
    if (steps < 0) high = passes_by(&s, 1);
    else {
      while (high && !passes_by(&s, high)) high = high * 1.5 > 64 ? 0 : high * 1.5;
      double low = high > 1 ? high / 1.5 : 0;
      for (i64 step = 0; high && step < steps; step++) {
        double middle = (low + high) / 2;
        if (passes_by(&s, middle)) high = middle;
        else low = middle;
      }
    }
  }
  free(s.jitter), free(s.passed), free(s.steps), free(s.tasks);
  return high;
}
