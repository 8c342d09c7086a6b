/* Windows of paths over flat tables, equal to the nanosecond to the functions of schedulability/path_windows.py, whose
   names these have; the reasons are there.  tests/planning/test_path_windows.py compares the two.

   Times are ns.  A task without a bound has the finish time NONE; a window without one is NONE. */

#include "common.h"

#define NEVER (-((i64)1 << 62))
#define FREE INT64_MAX /* a rival all of whose frames compete */
enum { RUNS = 3, SETS = 1 << RUNS };

/* The order of the fields is that of `native_windows.Tables`. */
typedef struct {
  /* by task */
  const i64 *wcet, *period, *offset, *release_jitter, *segment, *change, *priority, *deadline, *due_later, *sporadic;
  const i64 *group, *lanes, *width, *source, *key, *order;
  /* by group: one processor, full preemption, largest switch, whether any task has segments, its tasks */
  const i64 *single, *full, *group_switch, *segments, *first_of_group, *tasks_of_group;
  /* by task: its paths, whether they are too many, the groups that it rests on */
  const i64 *first_path, *too_many, *first_group, *rests_on;
  /* by path: its tasks, its source, its rank among equal windows */
  const i64 *first_task, *path_tasks, *source_offset, *source_jitter, *timer, *rank;
  const uint64_t *later;    /* by task and task, bits: whether the first triggers the second */
  const uint8_t *overlap;   /* by two lane sets */
  i64 *most, *finish, *value, *best;
  i64 tasks, groups, keys, sets, words, edf, rounds, steps, own_spans, own_jobs;
} Tables;

typedef struct { i64 run, begin; } Block;

typedef struct {
  i64 wcet, change, period, shift, finish, latest, first, segment; /* segment: 0 unless it blocks */
  i64 task, key;
  const Block *blocks;
  i64 n_blocks, own;
} Rival;

typedef struct {
  i64 origin, later, alone, runs, rest;
  Rival *rivals; /* the aligned ones first, then those of every other source */
  i64 aligned, sources;
  i64 *first;            /* by source: its first rival */
  struct Alike **alike; /* by source: its rivals as they are seen from any window, NULL if these are not kept */
  double share, begun;  /* what other sources delay at least: a share of the window, and before it begins */
} Window;

typedef struct { i64 index, latest, end; int done; } Hop;
typedef struct { Rival *rival; Hop *hops; i64 n_hops; int preempts, blocks; } Aligned;
typedef struct { i64 end, wcet, change, first; } Job;

typedef struct { i64 at, value, slope, rival; } Corner; /* rival: its number from 1 on if it begins to block, negative if it ends */

/* Rivals of one source that several paths meet, and the delays by them within windows, in order of these: a window, then
   a delay for each set of runs.  Delays only grow with the window and seldom do, so that between two windows with the
   same delays all have them. */
typedef struct Alike { uint64_t hash; i64 count, joint; Rival *rivals; i64 *points, n_points, room; } Alike;
enum { ALIKE = 1 << 13, POINTS = 1 << 12 };

typedef struct Slab { struct Slab *next; size_t size, used; } Slab;

typedef struct {
  const Tables *t;
  Slab *slabs, *slab;
  i64 *slot, *stamp_of_key, *run_of, *seen_of_group, *last_of_group;
  i64 generation;
  i64 *stamp, *known_at, clock;
  i64 *changed_at, *lowest; /* by task: when its finish changed, and the lowest priority on its paths */
  Alike *alike;
  i64 n_alike;
  Corner *corners;
  char *blocking;
  i64 n_corners;
  int failed;
} State;

/* Rounded down; most quotients are -1 or 0, which need no division. */
static inline i64 quotient(i64 a, i64 b) {
  if (a >= 0 && a < b) return 0;
  if (a < 0 && a >= -b) return -1;
  return floor_div(a, b);
}
static inline i64 rest_of(i64 a, i64 b) {
  if (a >= 0 && a < b) return a;
  i64 r = a % b;
  return r < 0 ? r + b : r;
}

/* -- memory of one window */

static void *take(State *s, size_t size) {
  size = (size + 15) & ~(size_t)15;
  while (s->slab && s->slab->used + size > s->slab->size) {
    s->slab = s->slab->next;
    if (s->slab) s->slab->used = 0;
  }
  if (!s->slab) {
    size_t room = size > (1 << 18) ? size : 1 << 18;
    Slab *more = malloc(sizeof(Slab) + 16 + room);
    if (!more) { s->failed = 1; return NULL; }
    more->size = room, more->used = 0, more->next = NULL;
    Slab **end = &s->slabs;
    while (*end) end = &(*end)->next;
    *end = more, s->slab = more;
  }
  char *base = (char *)(((uintptr_t)(s->slab + 1) + 15) & ~(uintptr_t)15);
  void *found = base + s->slab->used;
  s->slab->used += size;
  return found;
}

static void reset(State *s) {
  s->slab = s->slabs;
  if (s->slab) s->slab->used = 0;
}

/* -- what others delay */

static i64 interference(const Rival *r, i64 at, i64 window, i64 last) {
  i64 period = r->period, wcet = r->wcet, finish = r->finish;
  last = least_of(r->latest, last);
  at -= quotient(at + finish - 1, period) * period;
  if (at > last) return 0;
  i64 more = quotient(last - at, period), total = (more + 1) * (wcet + r->change), newest = at + more * period;
  while (at <= newest && at + finish < wcet) {
    total -= wcet - least_of(at + finish, window - at);
    at += period;
  }
  while (newest >= at && window - newest < wcet) {
    total -= wcet - (window - newest);
    newest -= period;
  }
  return total;
}

static void by_set(i64 total, const i64 *blocked, int joint, i64 *out) {
  out[0] = total;
  for (int run = 0; run < joint; run++)
    for (int mask = 0; mask < 1 << run; mask++) out[mask | 1 << run] = out[mask] + blocked[run];
}

static void at_phase(const Window *w, i64 window, int joint, int counted, i64 *out) {
  i64 total = 0, blocked[RUNS] = {0};
  for (i64 n = 0; n < w->aligned; n++) {
    const Rival *r = w->rivals + n;
    i64 last = r->first == FREE ? window - 1 : least_of(window - 1, r->shift + (r->first - 1) * r->period);
    if (counted) {
      total += interference(r, r->shift, window, last);
      if (r->own && -r->finish < r->shift && r->shift <= least_of(r->latest, last))
        total -= least_of(least_of(r->wcet, r->shift + r->finish), window - r->shift) + r->change;
    }
    if (joint && r->n_blocks) {
      i64 after = most_of(r->latest, -r->finish);
      i64 at = after + 1 + rest_of(r->shift - after - 1, r->period);
      if (r->own && at == r->shift) at += r->period;
      if (at <= last)
        for (i64 b = 0; b < r->n_blocks; b++) {
          const Block *block = r->blocks + b;
          if (block->run < joint && at < block->begin) blocked[block->run] = most_of(blocked[block->run], r->segment);
        }
    }
  }
  by_set(total, blocked, joint, out);
}

static void load(const Rival *rivals, i64 count, i64 window, int joint, i64 *best) {
  i64 period = rivals->period;
  for (int mask = 0; mask < 1 << joint; mask++) best[mask] = 0;
  i64 done[24];
  int n_done = 0;
  for (i64 n = 0; n < count; n++) {
    const Rival *r = rivals + n;
    i64 steps[7], last = least_of(r->latest, window - 1);
    int n_steps = 0;
    if (last > -r->finish) {
      steps[n_steps++] = last;
      if (r->wcet - r->finish < last) steps[n_steps++] = r->wcet - r->finish;
      if (window - r->wcet < last) steps[n_steps++] = window - r->wcet;
      if (r->change) steps[n_steps++] = 1 - r->finish;
    }
    if (r->n_blocks) {
      steps[n_steps++] = window - 1;
      steps[n_steps++] = most_of(r->latest, -r->finish) + 1;
    }
    for (int step = 0; step < n_steps; step++) {
      i64 phase = rest_of(steps[step] - r->shift, period), total = 0, blocked[RUNS] = {0}, sums[SETS];
      int known = 0;
      while (known < n_done && done[known] != phase) known++;
      if (known < n_done) continue;
      if (n_done < 24) done[n_done++] = phase;
      for (i64 m = 0; m < count; m++) {
        const Rival *o = rivals + m;
        total += interference(o, phase + o->shift, window, window - 1);
        if (joint && o->n_blocks) {
          i64 newest = window - 1 - rest_of(window - 1 - phase - o->shift, period);
          if (newest > most_of(o->latest, -o->finish))
            for (i64 b = 0; b < o->n_blocks; b++)
              if (o->blocks[b].run < joint)
                blocked[o->blocks[b].run] = most_of(blocked[o->blocks[b].run], o->segment);
        }
      }
      by_set(total, blocked, joint, sums);
      for (int mask = 0; mask < 1 << joint; mask++) best[mask] = most_of(best[mask], sums[mask]);
    }
  }
}

/* The same, faster for several rivals: the delay is a sum of trapezoids over the phase, followed from one corner to the
   next.  A job released at `u` from the window's begin takes min(wcet, u + finish, window - u) + change for u in
   (-finish, last]: it rises until `wcet - finish`, and falls from `window - wcet` on.  It blocks for u in (latest,
   window).  Returns 0 where a trapezoid has no top, or without memory. */

static i64 count_within(i64 first, i64 last, i64 shift, i64 period) {
  return last < first ? 0 : quotient(last - shift, period) - quotient(first - 1 - shift, period);
}

/* Adds a corner at `u`; what happens at phase 0 is in the values there. */
static inline i64 add_corner(Corner *corners, i64 count, Corner corner, const Rival *r) {
  corner.at = rest_of(corner.at - r->shift, r->period);
  if (!corner.at) return count;
  corners[count] = corner;
  return count + 1;
}

/* In order of the phase; those of one rival at one phase keep theirs. */
static void sort_corners(Corner *corners, i64 count) {
  static const i64 gaps[] = {301, 132, 57, 23, 10, 4, 1};
  for (int n = 0; n < 7; n++) {
    i64 gap = gaps[n];
    for (i64 next = gap; next < count; next++) {
      i64 place = next;
      if (corners[place - gap].at <= corners[place].at) continue;
      Corner corner = corners[next];
      for (; place >= gap && corners[place - gap].at > corner.at; place -= gap) corners[place] = corners[place - gap];
      corners[place] = corner;
    }
  }
}

static inline void see(i64 value, const i64 *blocked, int joint, i64 *best) {
  i64 sums[SETS];
  if (!joint) {
    best[0] = most_of(best[0], value);
    return;
  }
  by_set(value, blocked, joint, sums);
  for (int mask = 0; mask < 1 << joint; mask++) best[mask] = most_of(best[mask], sums[mask]);
}

static void block(const Rival *rivals, const char *blocking, i64 count, int joint, i64 *blocked) {
  memset(blocked, 0, sizeof(i64) * RUNS);
  for (i64 n = 0; n < count; n++)
    for (i64 b = 0; blocking[n] && b < rivals[n].n_blocks; b++)
      if (rivals[n].blocks[b].run < joint)
        blocked[rivals[n].blocks[b].run] = most_of(blocked[rivals[n].blocks[b].run], rivals[n].segment);
}

static int swept(State *s, const Rival *rivals, i64 count, i64 window, int joint, i64 *best) {
  if (count * 6 > s->n_corners) {
    free(s->corners), free(s->blocking);
    s->n_corners = count * 12;
    s->corners = malloc(sizeof(Corner) * s->n_corners), s->blocking = malloc(count * 2);
    if (!s->corners || !s->blocking) return s->n_corners = 0, 0;
  }
  Corner *corners = s->corners;
  i64 period = rivals->period, value = 0, slope = 0, n_corners = 0, blocked[RUNS];
  for (i64 n = 0; n < count; n++) {
    const Rival *r = rivals + n;
    i64 begin = 1 - r->finish, top = r->wcet - r->finish, fall = window - r->wcet, last = least_of(r->latest, window - 1);
    s->blocking[n] = 0;
    if (joint && r->n_blocks) {
      i64 from = most_of(r->latest, -r->finish) + 1;
      s->blocking[n] = count_within(from, window - 1, r->shift, period) > 0;
      if (from < window && window - from < period) {
        n_corners = add_corner(corners, n_corners, (Corner){from, 0, 0, n + 1}, r);
        n_corners = add_corner(corners, n_corners, (Corner){window, 0, 0, -n - 1}, r);
      }
    }
    if (last < begin) continue;
    if (top > fall) return 0;
    value += interference(r, r->shift, window, window - 1);
    slope += count_within(begin, least_of(top - 1, last), r->shift, period);
    slope -= count_within(most_of(fall, begin), last, r->shift, period);
    i64 first = begin < top ? 1 : begin < fall ? 0 : -1, end = last < top ? 1 : last < fall ? 0 : -1;
    i64 at_begin = least_of(least_of(r->wcet, 1), window - begin);
    i64 at_last = least_of(least_of(r->wcet, last + r->finish), window - last);
    n_corners = add_corner(corners, n_corners, (Corner){begin, at_begin + r->change, first, 0}, r);
    n_corners = add_corner(corners, n_corners, (Corner){last + 1, -(at_last + r->change + end), -end, 0}, r);
    if (begin < top && top <= last)
      n_corners = add_corner(corners, n_corners, (Corner){top, 0, top < fall ? -1 : -2, 0}, r);
    if (begin < fall && top < fall && fall <= last)
      n_corners = add_corner(corners, n_corners, (Corner){fall, 0, -1, 0}, r);
  }
  sort_corners(corners, n_corners);
  for (int mask = 0; mask < 1 << joint; mask++) best[mask] = 0;
  block(rivals, s->blocking, count, joint, blocked);
  see(value, blocked, joint, best);
  i64 at = 0;
  for (i64 n = 0; n < n_corners;) {
    i64 next = corners[n].at, changed = 0;
    see(value + slope * (next - 1 - at), blocked, joint, best);
    value += slope * (next - at);
    for (; n < n_corners && corners[n].at == next; n++) {
      i64 rival = corners[n].rival;
      value += corners[n].value, slope += corners[n].slope;
      if (rival) changed = 1, s->blocking[(rival < 0 ? -rival : rival) - 1] = rival > 0;
    }
    if (changed) block(rivals, s->blocking, count, joint, blocked);
    see(value, blocked, joint, best);
    at = next;
  }
  see(value + slope * (period - 1 - at), blocked, joint, best);
  return 1;
}

static void load_of(State *s, const Rival *rivals, i64 count, i64 window, int joint, i64 *best) {
  if (count < 2 || !swept(s, rivals, count, window, joint, best)) load(rivals, count, window, joint, best);
}

static int joint_of(const Window *w) { return (int)least_of(w->runs, RUNS); }

static uint64_t mixed(uint64_t hash, i64 value) {
  hash = (hash ^ (uint64_t)value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

static int is_alike(const Rival *a, const Rival *b) {
  if (a->wcet != b->wcet || a->change != b->change || a->period != b->period || a->shift != b->shift ||
      a->finish != b->finish || a->latest != b->latest || a->n_blocks != b->n_blocks)
    return 0;
  if (a->n_blocks && a->segment != b->segment) return 0;
  for (i64 n = 0; n < a->n_blocks; n++)
    if (a->blocks[n].run != b->blocks[n].run) return 0;
  return 1;
}

/* These rivals, the same whenever they look the same; NULL if there are too many to be kept. */
static Alike *alike_of(State *s, const Rival *rivals, i64 count, i64 joint) {
  uint64_t hash = mixed((uint64_t)count, joint);
  i64 n_blocks = 0;
  for (i64 n = 0; n < count; n++) {
    const Rival *r = rivals + n;
    hash = mixed(mixed(mixed(mixed(hash, r->wcet), r->shift), r->finish), r->latest);
    hash = mixed(mixed(mixed(hash, r->period), r->n_blocks ? r->segment : 0), r->n_blocks ? r->blocks[0].run : -1);
    n_blocks += r->n_blocks;
  }
  for (uint64_t place = hash % ALIKE;; place = (place + 1) % ALIKE) {
    Alike *kept = s->alike + place;
    if (!kept->rivals) {
      if (s->n_alike >= ALIKE / 2) return NULL;
      char *room = malloc(sizeof(Rival) * count + sizeof(Block) * (n_blocks + 1));
      if (!room) return NULL;
      Block *blocks = (Block *)(room + sizeof(Rival) * count);
      *kept = (Alike){hash, count, joint, (Rival *)room};
      s->n_alike++;
      memcpy(kept->rivals, rivals, sizeof(Rival) * count);
      for (i64 n = 0; n < count; n++) {
        if (rivals[n].n_blocks) memcpy(blocks, rivals[n].blocks, sizeof(Block) * rivals[n].n_blocks);
        kept->rivals[n].blocks = blocks;
        blocks += rivals[n].n_blocks;
      }
      return kept;
    }
    if (kept->hash != hash || kept->count != count || kept->joint != joint) continue;
    i64 n = 0;
    while (n < count && is_alike(kept->rivals + n, rivals + n)) n++;
    if (n == count) return kept;
  }
}

static void forget(State *s) {
  for (i64 n = 0; n < ALIKE; n++) free(s->alike[n].rivals), free(s->alike[n].points);
  memset(s->alike, 0, sizeof(Alike) * ALIKE);
  s->n_alike = 0;
}

/* The delays within a window by rivals that are kept, or `room` filled with them. */
static const i64 *delays(State *s, Alike *a, i64 window, i64 *room) {
  i64 row = 1 + (1 << a->joint), low = 0, high = a->n_points;
  size_t size = sizeof(i64) * (row - 1);
  while (low < high) { /* the first that is not below */
    i64 middle = (low + high) / 2;
    if (a->points[middle * row] < window) low = middle + 1;
    else high = middle;
  }
  i64 *at = a->points + low * row, above = a->n_points - low;
  if (above && (*at == window || (low && !memcmp(at - row + 1, at + 1, size)))) return at + 1;
  load_of(s, a->rivals, a->count, window, (int)a->joint, room);
  if (low > 1 && !memcmp(at - row + 1, room, size) && !memcmp(at - 2 * row + 1, room, size)) at[-row] = window;
  else if (above > 1 && !memcmp(at + 1, room, size) && !memcmp(at + row + 1, room, size)) *at = window;
  else if (a->n_points < POINTS) {
    if (a->n_points == a->room) {
      i64 *more = realloc(a->points, sizeof(i64) * row * (2 * a->room + 8));
      if (!more) return room;
      a->points = more, a->room = 2 * a->room + 8, at = more + low * row;
    }
    memmove(at + row, at, sizeof(i64) * row * above);
    *at = window, memcpy(at + 1, room, size), a->n_points++;
  }
  return room;
}

/* What sources of other phases delay within a window, for each set of runs that they block. */
static void foreign(State *s, Window *w, i64 window, int joint, i64 *best) {
  for (int mask = 0; mask < 1 << joint; mask++) best[mask] = 0;
  for (i64 n = 0; n < w->sources; n++) {
    i64 room[SETS], joined[SETS];
    const i64 *other = room;
    if (w->alike[n]) other = delays(s, w->alike[n], window, room);
    else load_of(s, w->rivals + w->first[n], w->first[n + 1] - w->first[n], window, joint, room);
    for (int mask = 0; mask < 1 << joint; mask++) {
      joined[mask] = best[mask] + other[0];
      for (int part = mask; part; part = (part - 1) & mask)
        joined[mask] = most_of(joined[mask], best[mask ^ part] + other[part]);
    }
    memcpy(best, joined, sizeof joined[0] << joint);
  }
}

static i64 others(State *s, Window *w, i64 window, const i64 *blocking) {
  int joint = joint_of(w), all = (1 << joint) - 1;
  i64 own[SETS], outside[SETS], longest = NONE;
  if (!blocking) at_phase(w, window + w->later, joint, 1, own);
  const i64 *mine = blocking ? blocking : own;
  foreign(s, w, window, joint, outside);
  for (int mask = 0; mask <= all; mask++) longest = most_of(longest, mine[mask] + outside[all ^ mask]);
  return longest + w->rest;
}

/* A window that no fixed point is below: jobs of any phase delay it at least by their mean over all phases. */
static i64 at_least(const Window *w, i64 own) {
  double window = w->share < 1 ? (own + w->begun) / (1 - w->share) * (1 - 1e-9) - 2 : 0;
  return most_of(own, window < (double)-NEVER ? (i64)window : 0);
}

static i64 end_of(State *s, Window *w, i64 limit) {
  i64 window = at_least(w, w->alone);
  for (i64 step = 0; step < s->t->steps; step++) {
    if (w->origin + window >= limit || (s->failed |= socsched_late())) return NONE;
    i64 longer = w->alone + others(s, w, window, NULL);
    if (longer <= window) return w->origin + window;
    window = longer;
  }
  return NONE;
}

static i64 length_of(State *s, Window *w, i64 charged, i64 span, i64 limit, i64 least) {
  i64 window = most_of(at_least(w, w->alone + charged), least), blocking[SETS];
  at_phase(w, span + w->later, joint_of(w), 0, blocking);
  for (i64 step = 0; step < s->t->steps; step++) {
    if (window >= limit || (s->failed |= socsched_late())) return NONE;
    i64 longer = w->alone + charged + others(s, w, window, blocking);
    if (longer <= window) return window;
    window = longer;
  }
  return NONE;
}

/* -- the rivals of a path */

static i64 ends(const Tables *t, i64 path, i64 task) {
  if (task == t->path_tasks[t->first_task[path + 1] - 1]) return -NEVER;
  return t->finish[task] + t->offset[task] - t->source_offset[path];
}

static int triggers(const Tables *t, i64 task, i64 other) {
  return t->later[task * t->words + other / 64] >> (other % 64) & 1;
}

static i64 due_of(const Tables *t, i64 path, i64 hop, i64 lateness) {
  i64 oldest = t->offset[hop] - t->source_offset[path] + t->release_jitter[hop];
  return t->deadline[hop] + least_of(oldest, t->due_later[hop] + lateness);
}

static i64 lateness_of(const Tables *t, i64 path, int late, int fixed) {
  return t->timer[path] || !(late || fixed) ? 0 : t->source_jitter[path];
}

/* The latest release of a job of `task` that goes before one of the hops that `near` selects: 0 all, 1 with its lanes. */
static i64 latest_release(const Tables *t, i64 path, i64 task, const i64 *hops, i64 count, int near, int late, int fixed) {
  i64 found = NEVER;
  for (i64 n = 0; n < count; n++) {
    if (near && !t->overlap[t->lanes[hops[n]] * t->sets + t->lanes[task]]) continue;
    if (t->edf)
      found = most_of(found, due_of(t, path, hops[n], lateness_of(t, path, late, fixed)));
    else if (t->priority[task] <= t->priority[hops[n]])
      return -NEVER;
  }
  return t->edf ? found - t->deadline[task] : NEVER;
}

static int is_on_path(const i64 *path, i64 count, i64 task) {
  for (i64 n = 0; n < count; n++)
    if (path[n] == task) return 1;
  return 0;
}

/* `Window.of`: NULL if a rival has no bound. */
static Window *window_from(State *s, i64 path, int late, i64 start) {
  const Tables *t = s->t;
  const i64 *whole = t->path_tasks + t->first_task[path], count = t->first_task[path + 1] - t->first_task[path];
  const i64 *hops = whole + start, n_hops = count - start, head = whole[0], last = whole[count - 1];
  i64 jitter = t->source_jitter[path], origin = t->source_offset[path], rows = 0, generation = ++s->generation;
  i64 run = -1, before = -1, *groups = take(s, sizeof(i64) * n_hops), n_groups = 0;
  for (i64 n = 0; n < n_hops; n++) {
    i64 group = t->group[hops[n]];
    s->run_of[start + n] = -1;
    if (t->single[group] && t->segments[group]) {
      run += group != before;
      s->run_of[start + n] = run;
    }
    before = group;
    if (s->seen_of_group[group] != generation) {
      s->seen_of_group[group] = generation;
      groups[n_groups++] = group;
      rows += t->first_of_group[group + 1] - t->first_of_group[group];
    }
  }
  Window *w = take(s, sizeof(Window));
  Rival *unsorted = take(s, sizeof(Rival) * rows);
  Block *blocks = take(s, sizeof(Block) * 2 * n_hops);
  i64 *mine = take(s, sizeof(i64) * n_hops), found = 0, n_keys = 0, aligned = 0;
  if (s->failed) return NULL;
  w->origin = late ? origin - t->offset[last] : 0, w->later = late ? 0 : jitter;
  w->alone = late && !start ? jitter : 0, w->runs = 0;
  i64 *slot_count = take(s, sizeof(i64) * (rows + 1)), keys = ++s->generation;
  if (s->failed) return NULL;
  for (i64 g = 0; g < n_groups; g++) {
    i64 group = groups[g], n_mine = 0, lanes = 0, single = t->single[group];
    for (i64 n = 0; n < n_hops; n++)
      if (t->group[hops[n]] == group) {
        mine[n_mine++] = hops[n];
        lanes = most_of(lanes, t->width[hops[n]]);
        w->alone += t->wcet[hops[n]];
      }
    i64 change = (single ? 1 : 2 * lanes) * t->group_switch[group];
    w->alone += (n_mine - 1) * change;
    Block *own_blocks = blocks, *their_blocks = NULL;
    i64 n_blocks = 0;
    if (single && t->segments[group]) {
      for (i64 n = 0, previous = -1; n < n_hops; n++)
        if (t->group[hops[n]] == group && s->run_of[start + n] != previous) {
          previous = s->run_of[start + n];
          own_blocks[n_blocks++] = (Block){previous, ends(t, path, hops[n])};
        }
      their_blocks = own_blocks + n_blocks;
      for (i64 n = 0; n < n_blocks; n++) their_blocks[n] = (Block){own_blocks[n].run, -NEVER};
      blocks += 2 * n_blocks;
    }
    i64 due[2] = {NEVER, NEVER}, lowest = NEVER;
    if (single)
      for (i64 n = 0; n < n_mine; n++) {
        if (t->edf)
          for (int fixed = 0; fixed < 2; fixed++)
            due[fixed] = most_of(due[fixed], due_of(t, path, mine[n], lateness_of(t, path, late, fixed)));
        lowest = most_of(lowest, t->priority[mine[n]]);
      }
    for (i64 place = t->first_of_group[group]; place < t->first_of_group[group + 1]; place++) {
      i64 task = t->tasks_of_group[place], end = t->finish[task];
      if (end == NONE) return NULL;
      int same = t->source[task] == t->source[head] && t->period[task] == t->period[head];
      int fixed = same && (!t->sporadic[task] || t->offset[task] == t->offset[head]);
      int loose = !fixed && (same || t->sporadic[task]), near = single;
      if (!single)
        for (i64 n = 0; n < n_mine && !near; n++) near = t->overlap[t->lanes[mine[n]] * t->sets + t->lanes[task]];
      i64 latest = -NEVER;
      if (single)
        latest = t->edf ? due[fixed] - t->deadline[task] : t->priority[task] <= lowest ? -NEVER : NEVER;
      else if (t->full[group])
        latest = latest_release(t, path, task, mine, n_mine, near, late, fixed);
      i64 blocking = t->segment[task] ? n_blocks : 0;
      if (latest <= -end && !blocking) continue;
      i64 key = fixed ? t->keys + t->tasks : loose ? t->keys + task : t->key[task];
      if (s->stamp_of_key[key] != keys) {
        s->stamp_of_key[key] = keys;
        s->slot[key] = n_keys;
        slot_count[n_keys++] = 0;
      }
      slot_count[s->slot[key]]++;
      aligned += fixed;
      unsorted[found++] = (Rival){
          .wcet = near ? t->wcet[task] : 0, .change = change, .period = t->period[task],
          .shift = t->offset[task] - origin, .finish = end, .latest = latest,
          .first = fixed && (task == last || triggers(t, last, task)) ? 0 : FREE,
          .segment = t->segment[task] + t->change[task], .task = task, .key = s->slot[key],
          .blocks = fixed ? own_blocks : their_blocks, .n_blocks = blocking,
          .own = fixed && is_on_path(whole, count, task)};
      if (blocking) w->runs = most_of(w->runs, own_blocks[n_blocks - 1].run + 1);
    }
  }
  /* by source, the path's own first */
  i64 own_key = t->keys + t->tasks, own_slot = s->stamp_of_key[own_key] == keys ? s->slot[own_key] : -1;
  w->rivals = take(s, sizeof(Rival) * (found + 1));
  w->first = take(s, sizeof(i64) * (n_keys + 2));
  if (s->failed) return NULL;
  w->aligned = aligned, w->sources = n_keys - (own_slot >= 0);
  i64 at = aligned, source = 0, *next = take(s, sizeof(i64) * (n_keys + 1));
  if (s->failed) return NULL;
  for (i64 slot = 0; slot < n_keys; slot++) {
    if (slot == own_slot) {
      next[slot] = 0;
      continue;
    }
    w->first[source++] = next[slot] = at;
    at += slot_count[slot];
  }
  w->first[source] = at;
  w->alike = take(s, sizeof(Alike *) * (n_keys + 1));
  if (s->failed) return NULL;
  for (i64 n = 0; n < found; n++) w->rivals[next[unsorted[n].key]++] = unsorted[n];
  for (i64 n = 0; n < w->sources; n++)
    w->alike[n] = alike_of(s, w->rivals + w->first[n], w->first[n + 1] - w->first[n], joint_of(w));
  w->rest = 0, w->share = w->begun = 0;
  for (i64 n = aligned; n < found; n++) {
    const Rival *r = w->rivals + n;
    if (r->latest != -NEVER) continue;
    double share = (double)r->wcet / (double)r->period;
    w->share += share, w->begun += share * (double)(r->finish - r->wcet);
  }
  for (i64 number = joint_of(w); number < w->runs; number++) {
    i64 longest = 0;
    for (i64 n = 0; n < found; n++)
      for (i64 b = 0; b < w->rivals[n].n_blocks; b++)
        if (w->rivals[n].blocks[b].run == number) longest = most_of(longest, w->rivals[n].segment);
    w->rest += longest;
  }
  return w;
}

/* -- the job that delays a path last */

static i64 oldest_frame(const Rival *r) { return -quotient(r->shift + r->finish - 1, r->period); }

static int has_frame(const Rival *r, i64 window) {
  i64 frame = oldest_frame(r), at = r->shift + frame * r->period;
  for (; at < window && (r->first == FREE || frame < r->first); at += r->period, frame++)
    if (frame || !r->own) return 1;
  return 0;
}

static Aligned aligned_rival(State *s, i64 path, Rival *rival) {
  const Tables *t = s->t;
  const i64 *whole = t->path_tasks + t->first_task[path], count = t->first_task[path + 1] - t->first_task[path];
  i64 task = rival->task, group = t->group[task], single = t->single[group];
  Aligned found = {rival, take(s, sizeof(Hop) * count), 0, !single, single && t->segment[task]};
  if (s->failed) return found;
  for (i64 n = 0; n < count; n++) {
    i64 name = whole[n];
    if (t->group[name] != group || !(single || t->overlap[t->lanes[name] * t->sets + t->lanes[task]])) continue;
    i64 latest = single || t->full[group] ? latest_release(t, path, task, &name, 1, 0, 1, 1) : -NEVER;
    found.hops[found.n_hops++] = (Hop){n, latest, ends(t, path, name), task == name || triggers(t, name, task)};
  }
  return found;
}

/* The number of jobs released within a span that may delay the path; -1 if they are too many. */
static i64 aligned_jobs(State *s, const Aligned *rivals, i64 count, i64 span, Job *jobs) {
  i64 found = 0;
  for (i64 n = 0; n < count; n++) {
    const Aligned *each = rivals + n;
    const Rival *r = each->rival;
    i64 frame = oldest_frame(r), at = r->shift + frame * r->period;
    for (; at < span && (r->first == FREE || frame < r->first); at += r->period, frame++) {
      if (!frame && r->own) continue;
      i64 first = -1, nearest = -1;
      for (i64 h = 0; h < each->n_hops && first < 0; h++) {
        const Hop *hop = each->hops + h;
        if (at >= hop->end || (hop->done && frame >= 0)) continue;
        if (nearest < 0) nearest = hop->index;
        if (at <= hop->latest) first = hop->index;
      }
      if (first >= 0 && each->blocks) first = nearest;
      if (first < 0 && !(at <= r->latest && each->preempts)) continue;
      if (found == s->t->own_jobs) return -1;
      jobs[found++] = first >= 0 ? (Job){at + r->finish, r->wcet, r->change, first} : (Job){at + r->finish, 0, r->change, 0};
    }
  }
  return found;
}

static i64 last_delay(State *s, i64 path, int late, Window **parts, char *made, Job *jobs, i64 count, i64 span, i64 most,
                      i64 *lengths, i64 *turn_of, i64 *order) {
  i64 fixed = 0, charged = 0, best = most, left = 0;
  for (i64 n = 0; n < count; n++) {
    fixed += jobs[n].change;
    if (jobs[n].wcet) jobs[left++] = jobs[n];
  }
  for (i64 n = 0; n < left; n++) { /* the latest end first */
    i64 place = n;
    for (; place && jobs[order[place - 1]].end < jobs[n].end; place--) order[place] = order[place - 1];
    order[place] = n;
  }
  i64 n_tasks = s->t->first_task[path + 1] - s->t->first_task[path];
  for (i64 n = 0; n < n_tasks; n++) lengths[n] = 0, turn_of[n] = 0;
  for (i64 turn = 1;; turn++) {
    i64 worst = NONE, by = -1;
    for (i64 n = -1; n < left; n++) {
      /* No part of a path takes longer than the whole, so a job that ends early enough is not the worst. */
      if (n >= 0 && jobs[order[n]].end + lengths[0] < worst) break;
      i64 start = n < 0 ? 0 : jobs[order[n]].first;
      if (turn_of[start] != turn) {
        turn_of[start] = turn;
        if (!made[start]) {
          made[start] = 1;
          parts[start] = window_from(s, path, late, start);
          if (s->failed) return NONE;
        }
        i64 length = parts[start] ? length_of(s, parts[start], fixed + charged, span, most, lengths[start]) : NONE;
        lengths[start] = length == NONE ? most : length;
      }
      if (n < 0) {
        if (lengths[0] >= best) return best < most ? best : NONE;
        worst = lengths[0];
        continue;
      }
      i64 value = jobs[order[n]].end + lengths[start];
      if (value > worst || (value == worst && by >= 0 && order[n] < order[by])) worst = value, by = n;
    }
    best = least_of(best, worst);
    if (by < 0) return best < most ? best : NONE;
    charged += least_of(jobs[order[by]].wcet, jobs[order[by]].end);
    memmove(order + by, order + by + 1, sizeof(i64) * (left - by - 1));
    left--;
  }
}

static i64 by_last_delay(State *s, i64 path, int late, Window *whole, i64 limit) {
  const Tables *t = s->t;
  i64 most = limit - whole->origin, span = whole->alone + 1, n_tasks = t->first_task[path + 1] - t->first_task[path];
  int any = 0;
  for (i64 n = 0; n < whole->aligned && !any; n++) any = has_frame(whole->rivals + n, most + whole->later);
  if (!any) return NONE;
  Aligned *rivals = take(s, sizeof(Aligned) * whole->aligned);
  Window **parts = take(s, sizeof(Window *) * n_tasks);
  char *made = take(s, n_tasks);
  Job *jobs = take(s, sizeof(Job) * (t->own_jobs + 1));
  i64 *lengths = take(s, sizeof(i64) * n_tasks), *turn_of = take(s, sizeof(i64) * n_tasks);
  i64 *order = take(s, sizeof(i64) * (t->own_jobs + 1));
  if (s->failed) return NONE;
  memset(made, 0, n_tasks);
  for (i64 n = 0; n < whole->aligned; n++) rivals[n] = aligned_rival(s, path, whole->rivals + n);
  if (s->failed) return NONE;
  made[0] = 1, parts[0] = whole;
  for (i64 turn = 0; turn < t->own_spans; turn++) {
    i64 count = aligned_jobs(s, rivals, whole->aligned, span + whole->later, jobs);
    if (count < 0) return NONE;
    i64 found = last_delay(s, path, late, parts, made, jobs, count, span, most, lengths, turn_of, order);
    if (found == NONE) return NONE;
    if (found <= span) return found + whole->origin;
    span = found;
  }
  return NONE;
}

static i64 window_of(State *s, i64 path, int late, i64 limit) {
  reset(s);
  if (s->n_alike >= ALIKE / 2) forget(s);
  Window *whole = window_from(s, path, late, 0);
  if (!whole) return NONE;
  i64 window = end_of(s, whole, limit), last = by_last_delay(s, path, late, whole, window == NONE ? limit : window);
  return last == NONE ? window : last;
}

/* -- all tasks */

/* Whether a finish time that the windows to a task rest on has changed since they were known.  Under fixed priorities
   where none blocks, those are of tasks that go before one on a path. */
static int has_changed(const State *s, i64 task) {
  const Tables *t = s->t;
  i64 known = s->known_at[task];
  for (i64 n = t->first_group[task]; known && n < t->first_group[task + 1]; n++) {
    i64 group = t->rests_on[n];
    if (s->stamp[group] <= known) continue;
    if (t->edf || !t->full[group] || t->segments[group]) return 1;
    for (i64 place = t->first_of_group[group]; place < t->first_of_group[group + 1]; place++) {
      i64 other = t->tasks_of_group[place];
      if (s->changed_at[other] > known && t->priority[other] <= s->lowest[task]) return 1;
    }
  }
  return !known;
}

static void longest(State *s, i64 task) {
  const Tables *t = s->t;
  if (!has_changed(s, task)) return;
  s->known_at[task] = s->clock;
  t->best[task] = -1;
  if (t->too_many[task]) return;
  i64 limit = t->most[task], most = NONE, best = -1;
  for (i64 path = t->first_path[task]; path < t->first_path[task + 1] && !s->failed; path++) {
    i64 window = window_of(s, path, 1, limit);
    if (t->source_jitter[path]) {
      i64 later = t->source_offset[path] + t->source_jitter[path] - t->offset[task];
      i64 arrived = window_of(s, path, 0, (window == NONE ? limit : window) - later);
      if (arrived != NONE) window = arrived + later;
    }
    if (window == NONE) return;
    if (best < 0 || window > most || (window == most && t->rank[path] > t->rank[best])) most = window, best = path;
  }
  t->value[task] = most, t->best[task] = best;
}

static void set(State *s, i64 task, i64 finish) {
  if (s->t->finish[task] == finish) return;
  s->t->finish[task] = finish;
  s->stamp[s->t->group[task]] = s->changed_at[task] = ++s->clock;
}

/* Whether the least finish times that windows of paths confirm were found; `finish` has the first guess. */
static int least(State *s) {
  const Tables *t = s->t;
  for (i64 round = 0; round < t->rounds; round++) {
    int changed = 0;
    for (i64 n = 0; n < t->tasks && !s->failed; n++) {
      i64 task = t->order[n], before = t->finish[task];
      if (t->most[task] == NONE) continue;
      longest(s, task);
      set(s, task, t->best[task] < 0 ? t->most[task] : most_of(t->value[task], before));
      changed |= t->finish[task] != before;
    }
    if (!changed || s->failed) return !s->failed;
  }
  return 0;
}

/* Fills `value` and `best` with the longest window to each task below `most`, and the path (-1: none is below), under
   the least finish times that are confirmed, else under `most`.  Returns 1 if they are, 0 if not, -1 without memory or
   time. */
static State *begin(const Tables *t) {
  State *s = calloc(1, sizeof(State));
  if (!s) return NULL;
  s->t = t, s->clock = 1;
  size_t keys = t->keys + t->tasks + 1;
  s->slot = calloc(keys, sizeof(i64)), s->stamp_of_key = calloc(keys, sizeof(i64));
  s->run_of = calloc(t->tasks + 1, sizeof(i64)), s->seen_of_group = calloc(t->groups + 1, sizeof(i64));
  s->stamp = calloc(t->groups + 1, sizeof(i64)), s->known_at = calloc(t->tasks + 1, sizeof(i64));
  s->changed_at = calloc(t->tasks + 1, sizeof(i64)), s->lowest = malloc((t->tasks + 1) * sizeof(i64));
  s->alike = calloc(ALIKE, sizeof(Alike));
  s->failed = !(s->alike && s->slot && s->stamp_of_key && s->run_of && s->seen_of_group && s->stamp && s->known_at &&
                s->changed_at && s->lowest);
  for (i64 task = 0; task < t->tasks && !s->failed; task++) {
    s->lowest[task] = t->priority[task];
    for (i64 n = t->first_task[t->first_path[task]]; n < t->first_task[t->first_path[task + 1]]; n++)
      s->lowest[task] = most_of(s->lowest[task], t->priority[t->path_tasks[n]]);
  }
  return s;
}

static void done(State *s) {
  if (s->alike) forget(s);
  free(s->alike), free(s->corners), free(s->blocking);
  for (Slab *slab = s->slabs, *next; slab; slab = next) next = slab->next, free(slab);
  free(s->slot), free(s->stamp_of_key), free(s->run_of), free(s->seen_of_group), free(s->stamp), free(s->known_at), free(s->changed_at), free(s->lowest);
  free(s);
}

int socsched_tighten(const Tables *t) {
  State *s = begin(t);
  if (!s) return -1;
  int confirmed = s->failed ? 0 : least(s);
  for (i64 task = 0; task < t->tasks && !confirmed && !s->failed; task++) set(s, task, t->most[task]);
  for (i64 task = 0; task < t->tasks && !s->failed; task++) {
    if (t->most[task] != NONE) longest(s, task);
    else t->best[task] = -1;
  }
  confirmed = s->failed ? -1 : confirmed;
  done(s);
  return confirmed;
}

/* Returns the window of a path from the arrival at its source, NONE from `limit` on; -1 without memory. */
i64 socsched_since(const Tables *t, i64 path, i64 limit) {
  State *s = begin(t);
  i64 found = s && !s->failed ? window_of(s, path, 0, limit) : -1;
  if (s && s->failed) found = -1;
  if (s) done(s);
  return found;
}
