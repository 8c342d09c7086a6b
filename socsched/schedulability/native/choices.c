/* Local deadlines and priorities of a whole plan with the bounds that follow, by the steps that a search takes: equal to
   `_edf` and `_fp` of planning/assess.py without windows of paths, and to what these call.  Times are ns. */

#include <math.h>

#include "common.h"

#define ROOM ((double)((i64)1 << 62))
enum { ROUNDS = 30, PATIENCE = 10, REACH = 16, STEEPEST = 6, OPTIONS = 3 };

/* The order of the fields is that of `native_choices.Tables`. */
typedef struct {
  const i64 *wcet, *period, *offset, *release_jitter, *segment, *change, *code, *order, *first_after, *after;
  const i64 *group, *first_of_group, *tasks_of_group, *single, *first_of_family, *tasks_of_family;
  const i64 *first_end, *ends, *budget, *first_of_lane, *tasks_of_lane, *lanes;
  const uint8_t *overlap, *near; /* near: by task and task, bits: whether one triggers the other */
  uint8_t *apart;
  /* what the tables of demand.c and responses.c name so, too */
  i64 *base, *names, *priority, *finish, *value, *bounded;
  i64 *chosen, *result, *bounds; /* deadlines, responses, whether these are bounds */
  void *demand, *responses;
  i64 *horizon;
  double *load;
  i64 tasks, groups, families, needs, every_lane, sets, words, steps, movable, work, busy_steps;
} Tables;

extern double socsched_factor(const void *, i64);
extern int socsched_holistic(const void *);
extern int socsched_edf(const void *, i64, int, i64, i64, i64 *, void *);

typedef struct {
  const Tables *t;
  i64 *before, *behind, *weight, *rank, *value, *bounded, *own, *ends, *found, *more, *jitter, *known, *room, *busy;
  i64 *options[OPTIONS];
  char *inside, *kept, *done;
} State;

enum { MET = 0, OVER = 1, WINDOWS = 2, UNKNOWN = 3 };

static i64 latest(const Tables *t, i64 task, const i64 *finish) {
  i64 found = t->release_jitter[task];
  for (i64 n = t->first_after[task]; n < t->first_after[task + 1]; n++)
    found = most_of(found, finish[t->after[n]] + t->offset[t->after[n]] - t->offset[task]);
  return found;
}

static i64 longest_after(const Tables *t, i64 task, const i64 *by) {
  i64 found = 0;
  for (i64 n = t->first_after[task]; n < t->first_after[task + 1]; n++) found = most_of(found, by[t->after[n]]);
  return found;
}

static i64 times(i64 a, i64 b, i64 by) { return (i64)((__int128)a * b / most_of(by, 1)); }

/* `weightings`: by WCET; and with the longest segment that can block. */
static void weigh(State *s, int blocked) {
  const Tables *t = s->t;
  for (i64 task = 0; task < t->tasks; task++) s->weight[task] = t->wcet[task];
  if (!blocked) return;
  memset(s->found, 0, sizeof(i64) * t->tasks);
  for (i64 lane = 0; lane < t->every_lane; lane++) {
    i64 first = -1, longest = 0, second = 0;
    for (i64 n = t->first_of_lane[lane]; n < t->first_of_lane[lane + 1]; n++) {
      i64 task = t->tasks_of_lane[n], segment = t->segment[task];
      if (first < 0 || segment > longest) second = first < 0 ? 0 : longest, longest = segment, first = task;
      else second = most_of(second, segment);
    }
    for (i64 n = t->first_of_lane[lane]; n < t->first_of_lane[lane + 1]; n++) {
      i64 task = t->tasks_of_lane[n];
      s->found[task] = most_of(s->found[task], task == first ? second : longest);
    }
  }
  for (i64 task = 0; task < t->tasks; task++) s->weight[task] += s->found[task];
}

/* `local_deadlines` */
static void divide(State *s, i64 *deadlines) {
  const Tables *t = s->t;
  for (i64 n = 0; n < t->tasks; n++) {
    i64 task = t->order[n];
    s->before[task] = s->weight[task] + longest_after(t, task, s->before);
    s->rank[task] = n;
    deadlines[task] = 64 * t->period[task];
    s->behind[task] = -1;
  }
  for (i64 need = 0; need < t->needs && !socsched_late(); need++) {
    i64 total = 0, budget = t->budget[need];
    for (i64 n = t->first_end[need]; n < t->first_end[need + 1]; n++)
      total += s->before[t->ends[n]], budget -= t->release_jitter[t->ends[n]];
    for (i64 n = t->first_end[need]; n < t->first_end[need + 1]; n++) {
      i64 end = t->ends[n], mine = times(most_of(budget, total), s->before[end], total);
      i64 open = 1;
      s->behind[end] = 0;
      for (i64 at = s->rank[end]; at >= 0 && open; at--) {
        i64 task = t->order[at], behind = s->behind[task];
        if (behind < 0) continue;
        s->behind[task] = -1, open--;
        deadlines[task] = least_of(deadlines[task], most_of(times(mine, s->before[task], s->before[task] + behind), 1));
        for (i64 m = t->first_after[task]; m < t->first_after[task + 1]; m++) {
          i64 other = t->after[m];
          open += s->behind[other] < 0;
          s->behind[other] = most_of(s->behind[other], behind + s->weight[task]);
        }
      }
    }
  }
}

typedef struct { i64 deadline, task; } Place;
static int by_deadline(const void *a, const void *b) {
  const Place *x = a, *y = b;
  if (x->deadline != y->deadline) return (x->deadline > y->deadline) - (x->deadline < y->deadline);
  return (x->task > y->task) - (x->task < y->task);
}

/* `priorities`, and the horizon of the answers under them. */
static void prioritise(State *s, const i64 *deadlines) {
  const Tables *t = s->t;
  i64 longest = 0;
  Place *places = (Place *)s->room;
  for (i64 task = 0; task < t->tasks; task++) {
    places[task] = (Place){deadlines[task], task};
    longest = most_of(longest, most_of(t->period[task], deadlines[task]));
  }
  qsort(places, t->tasks, sizeof(Place), by_deadline);
  for (i64 level = 0; level < t->tasks; level++) t->priority[places[level].task] = level;
  *t->horizon = 32 * longest;
}

/* `_endless` for lanes that sets of different lanes share; on others utilisations are known to fit. */
static int is_endless(const State *s) {
  const Tables *t = s->t;
  for (i64 group = 0; group < t->groups; group++) {
    i64 begin = t->first_of_group[group], end = t->first_of_group[group + 1];
    for (i64 n = begin; !t->single[group] && n < end && !socsched_late(); n++) {
      i64 task = t->tasks_of_group[n];
      double used = 0;
      for (i64 m = begin; m < end; m++) {
        i64 other = t->tasks_of_group[m];
        int apart = t->apart[8 * t->words * task + other / 8] >> (other % 8) & 1;
        if (m != n && !apart && t->overlap[t->lanes[task] * t->sets + t->lanes[other]] &&
            (t->code[task] || t->priority[other] < t->priority[task]))
          used += (double)t->wcet[other] / (double)t->period[other];
      }
      if ((double)t->wcet[task] / (double)t->period[task] + used > 1 + 1e-9) return 1;
    }
  }
  return 0;
}

/* Responses under fixed priorities (`holistic`) into s->value; 0 where one is no bound, -1 without memory. */
static int by_priorities(State *s) {
  const Tables *t = s->t;
  memcpy(t->apart, t->near, 8 * t->words * t->tasks);
  memset(s->kept, 1, t->families + 1);
  for (;;) {
    if (is_endless(s)) return 0;
    for (i64 n = 0; n < t->tasks; n++) t->finish[t->order[n]] = latest(t, t->order[n], t->finish) + t->wcet[t->order[n]];
    if (socsched_holistic(t->responses)) return -1;
    for (i64 task = 0; task < t->tasks; task++)
      if (!t->bounded[task] || t->value[task] >= *t->horizon || t->finish[task] != t->value[task]) return 0;
    int held = 1;
    for (i64 family = 0; family < t->families; family++) {
      int in_time = s->kept[family];
      for (i64 n = t->first_of_family[family]; in_time && n < t->first_of_family[family + 1]; n++)
        in_time = t->value[t->tasks_of_family[n]] <= t->period[t->tasks_of_family[n]];
      if (in_time || !s->kept[family]) continue;
      held = s->kept[family] = 0;
      for (i64 n = t->first_of_family[family]; n < t->first_of_family[family + 1]; n++)
        memset(t->apart + 8 * t->words * t->tasks_of_family[n], 0, 8 * t->words);
    }
    if (held) break;
  }
  memcpy(s->value, t->value, sizeof(i64) * t->tasks);
  return 1;
}

static double load_of(const Tables *t, const i64 *finish, const i64 *late) {
  double most = 0;
  for (i64 need = 0; need < t->needs; need++) {
    i64 used = 0;
    for (i64 n = t->first_end[need]; n < t->first_end[need + 1]; n++)
      used += finish[t->ends[n]] + (late ? late[t->ends[n]] : 0);
    double share = (double)used / (double)most_of(t->budget[need], 1);
    if (!need || share > most) most = share;
  }
  return most;
}

/* -- EDF */

typedef struct { i64 wcet, period, deadline, jitter, segment; } Row;

/* The responses of the groups inside if tasks finish by `finish`, into s->more; 0 without, -1 where Python must. */
static int respond(State *s, const i64 *due, const i64 *finish, int holds) {
  const Tables *t = s->t;
  Row *rows = (Row *)s->room;
  for (i64 group = 0; group < t->groups; group++) {
    i64 begin = t->first_of_group[group], count = t->first_of_group[group + 1] - begin;
    if (!s->inside[group]) continue;
    const i64 *members = t->tasks_of_group + begin;
    int same = s->done[group], whole = 1;
    for (i64 n = 0; n < count; n++) {
      i64 late = latest(t, members[n], finish);
      same = same && s->jitter[members[n]] == late;
      s->jitter[members[n]] = late;
      whole = whole && t->code[members[n]] == 2;
    }
    if (!same) {
      double used = 0, begun = 0, longest = 0;
      for (i64 n = 0; n < count; n++) {
        i64 task = members[n], region = whole ? t->wcet[task] + t->change[task]
                                        : t->code[task] == 1 ? t->segment[task] + t->change[task] : 0;
        Row row = {t->wcet[task] + t->change[task], t->period[task], due[task] + t->release_jitter[task],
                   s->jitter[task], most_of(region - 1, 0)};
        rows[n] = row;
        used += (double)row.wcet / (double)row.period;
        begun += (double)row.wcet * (2 + (double)row.jitter / (double)row.period) + (double)row.segment;
        longest = fmax(longest, fmax(fmax((double)row.wcet, (double)row.period),
                                     fmax(fabs((double)row.deadline), fmax((double)row.jitter, (double)row.segment))));
      }
      if (fabs(used - 1) < 1e-6) return -1;
      if (used > 1) return 0;
      longest += begun / fmax(1 - used, 1e-9);
      if (8 * longest * (1 + used) + 8 * begun >= ROOM) return -1;
      if (socsched_edf(rows, count, whole, t->work, t->busy_steps, s->known + begin, s->busy)) return -1;
      s->done[group] = 1;
    }
    for (i64 n = 0; n < count; n++) {
      i64 value = s->known[begin + n], mine = s->own[members[n]];
      if (value == NONE) return 0;
      s->more[members[n]] = holds && mine <= value ? mine : value;
    }
  }
  return 1;
}

/* `holistic_responses`, into s->value and s->bounded, which are those of local deadlines before; -1 where Python must. */
static int by_edf(State *s, const i64 *due, int holds) {
  const Tables *t = s->t;
  i64 horizon = 0;
  for (i64 group = 0; group < t->groups; group++) {
    s->done[group] = 0, s->inside[group] = t->single[group];
    for (i64 n = t->first_of_group[group]; n < t->first_of_group[group + 1]; n++)
      s->inside[group] = s->inside[group] && !t->release_jitter[t->tasks_of_group[n]];
  }
  for (int fewer = !holds; fewer;) { /* no task inside may wait for one without a bound */
    fewer = 0;
    for (i64 task = 0; task < t->tasks; task++)
      for (i64 n = t->first_after[task]; s->inside[t->group[task]] && n < t->first_after[task + 1]; n++)
        if (!s->inside[t->group[t->after[n]]]) s->inside[t->group[task]] = 0, fewer = 1;
  }
  i64 *finish = s->ends;
  for (i64 n = 0; n < t->tasks; n++) {
    i64 task = t->order[n];
    finish[task] = s->inside[t->group[task]] ? latest(t, task, finish) + t->wcet[task] : s->own[task];
    horizon = most_of(horizon, REACH * t->period[task]);
  }
  for (int turn = 0; turn < ROUNDS; turn++) {
    int answer = respond(s, due, finish, holds), held = 1;
    if (answer <= 0) return answer;
    for (i64 task = 0; task < t->tasks; task++) {
      if (!s->inside[t->group[task]]) continue;
      if (s->more[task] > horizon) return 0;
      held = held && s->more[task] <= finish[task];
    }
    if (held) {
      for (int step = 0; step <= PATIENCE; step++) {
        int lower = 0;
        for (i64 task = 0; task < t->tasks; task++) {
          if (!s->inside[t->group[task]]) continue;
          lower = lower || s->more[task] != finish[task];
          s->value[task] = s->more[task], s->bounded[task] = 1;
        }
        if (!lower || step == PATIENCE) return 1;
        for (i64 task = 0; task < t->tasks; task++)
          if (s->inside[t->group[task]]) finish[task] = s->more[task];
        answer = respond(s, due, finish, holds);
        if (answer < 0) return -1;
        if (!answer) return 1;
      }
    }
    i64 faster = turn >= PATIENCE ? (i64)1 << least_of(turn - PATIENCE, STEEPEST) : 0;
    for (i64 task = 0; task < t->tasks; task++)
      if (s->inside[t->group[task]]) finish[task] += most_of(s->more[task] - finish[task], 0) * (1 + faster);
  }
  return 0;
}

static void scale(const Tables *t, const i64 *from, double factor, i64 *to) {
  for (i64 task = 0; task < t->tasks; task++) to[task] = most_of((i64)nearbyint((double)from[task] * factor), 1);
}

static int judged(State *s, const i64 *deadlines, const i64 *value, const i64 *bounded) {
  const Tables *t = s->t;
  double lost = 0;
  for (i64 task = 0; task < t->tasks; task++) lost += !bounded[task];
  *t->load = load_of(t, value, NULL) + 1000.0 * lost;
  if (t->chosen != deadlines) memcpy(t->chosen, deadlines, sizeof(i64) * t->tasks);
  memcpy(t->result, value, sizeof(i64) * t->tasks);
  memcpy(t->bounds, bounded, sizeof(i64) * t->tasks);
  return *t->load > 1 && *t->load <= 4 ? WINDOWS : MET;
}

/* Whether the second weighting gives the deadlines of the first. */
static int is_same(const State *s) { return !memcmp(s->options[0], s->options[1], sizeof(i64) * s->t->tasks); }

static int edf(State *s) {
  const Tables *t = s->t;
  int options = 2;
  for (int option = 0; option < 2; option++) weigh(s, option), divide(s, s->options[option]);
  prioritise(s, s->options[0]);
  int fixed = by_priorities(s);
  if (fixed < 0) return -1;
  if (fixed) {
    options = 3;
    for (i64 task = 0; task < t->tasks; task++)
      s->options[2][task] = most_of(s->value[task] - t->release_jitter[task], 1);
  }
  double best = -1;
  for (i64 task = 0; task < t->tasks; task++) t->names[task] = 1;
  for (int option = 0; option < options; option++) {
    if (option == 1 && is_same(s)) continue;
    memcpy(t->base, s->options[option], sizeof(i64) * t->tasks);
    double factor = socsched_factor(t->demand, t->steps);
    if (factor < 0) return -1;
    if (!factor) continue;
    scale(t, s->options[option], factor, s->found);
    double load = load_of(t, s->found, t->release_jitter);
    if (best < 0 || load < best) best = load, memcpy(t->chosen, s->found, sizeof(i64) * t->tasks);
  }
  int holds = best >= 0;
  if (!holds) memcpy(t->chosen, s->options[0], sizeof(i64) * t->tasks);
  for (i64 task = 0; task < t->tasks; task++) {
    s->own[task] = s->value[task] = t->chosen[task] + t->release_jitter[task];
    s->bounded[task] = holds;
  }
  if ((holds || t->movable) && by_edf(s, t->chosen, holds) < 0) return UNKNOWN;
  int found = judged(s, t->chosen, s->value, s->bounded);
  if (found == MET && *t->load > 1 && (!holds || best > 1)) {
    memcpy(t->base, s->options[0], sizeof(i64) * t->tasks);
    memset(t->names, 0, sizeof(i64) * t->tasks);
    double passes = socsched_factor(t->demand, -1);
    if (passes < 0) return -1;
    if (!passes) return OVER;
  }
  return found;
}

static int fixed_priorities(State *s) {
  const Tables *t = s->t;
  int found = UNKNOWN;
  for (i64 task = 0; task < t->tasks; task++) s->bounded[task] = 1;
  for (int option = 0; option < 2; option++) {
    weigh(s, option), divide(s, s->options[option]);
    if (option && is_same(s)) continue;
    prioritise(s, s->options[option]);
    int answer = by_priorities(s);
    if (answer <= 0) return answer ? -1 : UNKNOWN;
    double load = load_of(t, s->value, NULL);
    if (load > 1 && load <= 4) found = WINDOWS;
    if (option && load >= *t->load) continue;
    int mine = judged(s, s->options[option], s->value, s->bounded);
    if (found != WINDOWS) found = mine;
  }
  return found;
}

/* Chooses, and returns whether windows of paths may shorten the bounds, or Python must find them; -1 without memory. */
int socsched_choose(const Tables *t, int is_edf) {
  i64 size = t->tasks + 2;
  char *room = calloc(1, sizeof(i64) * size * (14 + OPTIONS + 5 + 4) + 2 * (size + t->groups + t->families));
  if (!room) return -1;
  i64 *at = (i64 *)room;
  State s = {t};
  i64 **columns[] = {&s.before, &s.behind, &s.weight, &s.rank, &s.value, &s.bounded, &s.own, &s.ends, &s.found,
                     &s.more, &s.jitter, &s.known, &s.options[0], &s.options[1], &s.options[2]};
  for (size_t n = 0; n < sizeof columns / sizeof *columns; n++) *columns[n] = at, at += size;
  s.room = at, at += 5 * size, s.busy = at, at += 4 * size;
  s.inside = (char *)at, s.done = s.inside + t->groups + 1, s.kept = s.done + t->groups + 1;
  int found = is_edf ? edf(&s) : fixed_priorities(&s);
  free(room);
  return found;
}
