/* Response times over flat tables, equal to the nanosecond to the functions of schedulability/response_times.py,
   holistic.py and published/earliest_deadline_first.py, whose names these have; the reasons are there.  Times are ns. */

#include "common.h"

/* `ceil_div` of what is not negative, with about 1 / b: a quarter of the time. */
static i64 jobs_in(i64 a, i64 b, double inverse) {
  i64 jobs = (i64)((double)a * inverse), rest = a - jobs * b;
  for (; rest < 0; rest += b) jobs--;
  for (; rest > 0; rest -= b) jobs++;
  return jobs;
}

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

typedef struct { i64 due, task; } Due;
/* Of a task: its jobs that arrive within a length, up to which length there are so many, and those that are due. */
typedef struct { i64 jobs, until, most; double inverse; } Other;

static int by_due(const void *a, const void *b) {
  const Due *x = a, *y = b;
  if (x->due != y->due) return x->due > y->due ? 1 : -1;
  return (x->task > y->task) - (x->task < y->task);
}

/* Lengthens `busy` to `length` and returns how much more the others then take of it. */
static i64 lengthen(const Task *tasks, i64 count, int whole, Other *others, Busy *busy, i64 length) {
  i64 more = 0;
  busy->length = length;
  for (i64 n = 0; n < count; n++) {
    const Task *o = tasks + n;
    Other *other = others + n;
    if (length <= other->until) continue;
    i64 jobs = jobs_in(length + o->jitter + whole, o->period, other->inverse);
    more += (least_of(jobs, other->most) - least_of(other->jobs, other->most)) * o->wcet;
    other->jobs = jobs, other->until = jobs * o->period - o->jitter - whole;
  }
  return more;
}

/* The busy period before an arrival, from the one `before`, of which the others take `taken`. */
static Busy busy_of(const Task *tasks, i64 count, i64 mine, i64 arrival, i64 earlier, int whole, int blocks, Other *others, Busy before, i64 *taken) {
  const Task *task = tasks + mine;
  i64 due = arrival + task->deadline, blocked = 0;
  for (i64 n = 0; blocks && n < count; n++)
    if (tasks[n].segment > blocked && n != mine && tasks[n].deadline > due) blocked = tasks[n].segment;
  i64 least = blocked + earlier * task->wcet + (whole ? 0 : task->wcet), longer;
  Busy found = {arrival, blocked, before.length, earlier};
  if (before.blocked != blocked) {
    for (i64 n = 0; n < count; n++) others[n].jobs = 0, others[n].until = NONE / 2;
    *taken = 0, found.length = -1;
  }
  while ((longer = least + *taken) > found.length) *taken += lengthen(tasks, count, whole, others, &found, longer);
  return found;
}

/* The absolute deadlines of jobs up to which a task may be delayed that arrives within the busy period, sorted; NULL
   without memory.  They are the same for all tasks, each of which looks at a part. */
static Due *dues_of(const Task *tasks, i64 count, i64 busy, i64 *found) {
  Due *parts = malloc(sizeof(Due) * (count + 1)), *dues = NULL;
  i64 n_parts = 0, most = 0;
  if (!parts) return NULL;
  for (i64 n = 0; n < count; n++) parts[n] = (Due){tasks[n].deadline - tasks[n].jitter, tasks[n].deadline + busy};
  qsort(parts, count, sizeof(Due), by_due);
  for (i64 n = 0; n < count; n++) { /* from `due` until `task` */
    if (n_parts && parts[n].due <= parts[n_parts - 1].task)
      parts[n_parts - 1].task = most_of(parts[n_parts - 1].task, parts[n].task);
    else parts[n_parts++] = parts[n];
  }
  for (int pass = 0; pass < 2 && (!pass || (dues = malloc(sizeof(Due) * (most + 1)))); pass++) {
    *found = 0;
    for (i64 part = 0; part < n_parts; part++)
      for (i64 n = 0; n < count; n++) {
        i64 at = tasks[n].deadline - tasks[n].jitter, period = tasks[n].period, end = parts[part].task;
        at += most_of(ceil_div(parts[part].due - at, period), 0) * period;
        if (!pass) most += at < end ? (end - 1 - at) / period + 1 : 0;
        for (; pass && at < end; at += period) dues[(*found)++] = (Due){at, n};
      }
  }
  free(parts);
  if (dues) qsort(dues, *found, sizeof(Due), by_due);
  return dues;
}

/* `response_rows` but for its terms: fills the response of every task, NONE where there are more than `work` arrivals
   times tasks, and its busy period.  Returns 0, or -1 without memory. */
int socsched_edf(const Task *tasks, i64 count, int whole, i64 work, i64 steps, i64 *values, Busy *longest) {
  i64 busy = busy_period(tasks, count, steps), arrivals = 0, found;
  int blocks = 0;
  for (i64 n = 0; n < count; n++) values[n] = NONE;
  if (busy == NONE) return 0;
  for (i64 n = 0; n < count; n++) arrivals += busy / tasks[n].period + 1, blocks |= tasks[n].segment != 0;
  if (arrivals > work / (count * count)) return 0;
  Due *dues = dues_of(tasks, count, busy, &found);
  Other *others = malloc(sizeof(Other) * (count + 1));
  for (i64 mine = 0; dues && others && mine < count && !socsched_late(); mine++) {
    const Task *task = tasks + mine;
    i64 first = task->deadline - task->jitter, worst = -1, earlier = -1, at = 0, taken = 0;
    for (i64 step = found; step; step /= 2) /* to the first that is not before its own */
      while (at + step <= found && dues[at + step - 1].due < first) at += step;
    for (i64 n = 0; n < count; n++)
      others[n] = (Other){0, NONE / 2, n == mine ? 0 : most_of(ceil_div(first - tasks[n].deadline + tasks[n].jitter, tasks[n].period), 0), 1 / (double)tasks[n].period};
    Busy before = {0, 0, -1, 0};
    longest[mine] = (Busy){0, 0, 0, 0};
    while (at < found && dues[at].due < task->deadline + busy && !socsched_late()) {
      i64 due = dues[at].due, arrival = due - task->deadline;
      for (; at < found && dues[at].due == due; at++)
        if (dues[at].task == mine) earlier++;
        else {
          Other *other = others + dues[at].task;
          if (other->jobs > other->most++) taken += tasks[dues[at].task].wcet;
        }
      if (task->wcet && busy - arrival <= worst) break;
      before = busy_of(tasks, count, mine, arrival, earlier, whole, blocks, others, before, &taken);
      i64 value = most_of(before.length + (whole ? task->wcet : 0) - before.arrival, task->jitter + task->wcet);
      if (value > worst) worst = value, longest[mine] = before;
    }
    values[mine] = worst;
  }
  int failed = !dues || !others;
  free(dues), free(others);
  return -failed;
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
/* `done`: what jobs take that arrive within a window that is not longer than `until`, and the last that was asked for. */
typedef struct { i64 late, period, wcet, until, done; double inverse, share; } Delay;
typedef struct {
  const Tables *t;
  i64 task, *jitter;
  i64 *rivals, n_rivals; /* that keep it from running */
  i64 *events, n_events; /* whose arrivals and completions may preempt */
  Delay *delays;         /* of the rivals, in one way */
  const double *inverse; /* of periods */
} Case;

/* The rivals as they delay in one way: by jobs that arrive late, or that may end as late as is known. */
static void look(Case *c, int way) {
  const Tables *t = c->t;
  for (i64 n = 0; n < c->n_rivals; n++) {
    i64 o = c->rivals[n], late = way == CLASSIC ? c->jitter[o] : most_of(t->finish[o] - t->wcet[o], 0);
    i64 more = way == CLASSIC ? t->change[o] : c->events == c->rivals ? 2 * t->width[c->task] * t->change[c->task] : 0;
    i64 wcet = t->wcet[o] + more;
    c->delays[n] = (Delay){late, t->period[o], wcet, -1, 0, c->inverse[o], (double)wcet * c->inverse[o]};
  }
}

static i64 inside(const Case *c, int way, i64 window) {
  const Tables *t = c->t;
  i64 total = 0, events = 0;
  for (i64 n = 0; n < c->n_rivals; n++) {
    Delay *d = c->delays + n;
    if (window > d->until) {
      i64 jobs = jobs_in(window + d->late, d->period, d->inverse);
      d->until = jobs * d->period - d->late, d->done = jobs * d->wcet;
    }
    total += d->done;
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
    Delay *d = c->delays + n;
    used += d->share, begun += d->share * (double)d->late;
  }
  double window = used < 1 ? begun / (1 - used) * (1 - 1e-9) - 2 : 0;
  return window < (double)c->t->horizon ? (i64)window : 0;
}

/* The answer; any whose value is not below `most` where it cannot be. */
static Answer preemptive(Case *c, int way, i64 blocking, i64 most) {
  const Tables *t = c->t;
  i64 wcet = t->wcet[c->task], period = t->period[c->task], jitter = c->jitter[c->task], window = 0;
  Answer worst = {-1, 1, way, 0, 0};
  look(c, way);
  for (i64 frame = 0;; frame++) {
    i64 own = blocking + (frame + 1) * wcet, begin = most_of(window, own), longer;
    i64 at = most_of(begin, at_least(c, own));
    for (;;) {
      longer = own + inside(c, way, at);
      if (longer > t->horizon && begin < at) at = begin, begin = t->horizon, look(c, way); /* what is no bound is where steps end */
      else if (longer <= at || longer > t->horizon || socsched_late()) break;
      else if (jitter + longer - frame * period >= most) return (Answer){most, 1, way, frame, longer};
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

static Answer respond(const Tables *t, i64 task, i64 *jitter, i64 *rivals, i64 *events, Delay *delays, const double *inverse, i64 blocks) {
  Case c = {t, task, jitter, rivals, 0, events, 0, delays, inverse};
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
  if (!single) return preemptive(&c, GANG, 0, INT64_MAX);
  i64 blocking = blocks ? longest_blocking(t, task, 0) : 0;
  Answer found = whole ? until_start(&c, blocking) : preemptive(&c, CLASSIC, blocking, INT64_MAX);
  if (near) {
    i64 kept = 0;
    for (i64 n = 0; n < c.n_rivals; n++)
      if (!is_apart(t, task, rivals[n])) rivals[kept++] = rivals[n];
    c.n_rivals = c.n_events = kept;
    c.events = rivals;
    Answer other = preemptive(&c, GANG, blocks ? longest_blocking(t, task, 1) : 0, found.bounded ? found.value : INT64_MAX);
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

/* The finish times at which those of `_iterate` no longer grow.  A round goes through the tasks by priority, as deadlines
   grow along chains, and lets each meet what those before it have grown to.  Answers are computed again where what they
   rest on has changed since: on one processor, its own activation and what has a higher priority. */
int socsched_holistic(const Tables *t) {
  i64 count = t->tasks, groups = 1, clock = 0;
  for (i64 task = 0; task < count; task++) groups = most_of(groups, t->group[task] + 1);
  i64 *room = malloc(sizeof(i64) * (16 * (count + 1) + 3 * groups));
  if (!room) return -1;
  /* seen, moved, changed: when a task was answered, its activation changed, and that or its end; newest: of a group */
  i64 *jitter = room + 2 * (count + 1), *seen = jitter + count + 1, *moved = seen + count + 1, *changed = moved + count + 1;
  i64 *above = changed + count + 1, *newest = above + groups, *blocks = newest + groups;
  double *inverse = (double *)(blocks + groups);
  Due *order = (Due *)(inverse + count + 1);
  Delay *delays = (Delay *)(order + count + 1);
  for (i64 group = 0; group < groups; group++) newest[group] = blocks[group] = 0;
  for (i64 task = 0; task < count; task++) {
    jitter[task] = latest(t, task), blocks[t->group[task]] |= t->segment[task] != 0;
    seen[task] = -1, moved[task] = changed[task] = 0, inverse[task] = 1 / (double)t->period[task];
    order[task] = (Due){t->priority[task], task};
  }
  qsort(order, count, sizeof(Due), by_due);
  for (i64 grown = 1; grown && !socsched_late();) {
    grown = 0;
    for (i64 group = 0; group < groups; group++) above[group] = 0;
    for (i64 n = 0; n < count && !socsched_late(); n++) {
      i64 task = order[n].task, group = t->group[task], at = latest(t, task);
      if (at != jitter[task]) jitter[task] = at, grown = 1, moved[task] = changed[task] = newest[group] = ++clock;
      i64 since = t->single[group] ? most_of(above[group], moved[task]) : newest[group];
      if (!t->endless[task] && since > seen[task]) {
        Answer found = respond(t, task, jitter, room, room + count + 1, delays, inverse, blocks[group]);
        t->value[task] = found.value, t->bounded[task] = found.bounded, t->way[task] = found.way;
        t->frame[task] = found.frame, t->window[task] = found.window, seen[task] = clock;
        i64 value = found.bounded ? least_of(found.value, t->horizon) : t->horizon;
        if (value > t->finish[task]) t->finish[task] = value, grown = 1, changed[task] = newest[group] = ++clock;
      }
      above[group] = most_of(above[group], changed[task]);
    }
  }
  free(room);
  return socsched_late() ? -1 : 0;
}
