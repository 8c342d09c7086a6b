/* Verdicts and bounds of plain periodic tasks on one preemptive processor, a set at a time.

   The published tests that apply to such sets (`published`), term for term: utilisation, Liu & Layland, hyperbolic,
   Joseph & Pandya, Lehoczky under fixed priorities; Liu & Layland, Baruah et al. with QPA, and Spuri under EDF.  Times in
   ns.  What a comparison of rational numbers decides is decided here only where floating point cannot err; the caller
   leaves the other sets to the tests themselves. */

#include <stdint.h>

typedef int64_t i64;

enum { UTILISATION, LIU_LAYLAND, HYPERBOLIC, RESPONSE_TIME, BUSY_PERIOD, EDF_UTILISATION, QPA, SPURI, NO_TEST };
enum { FEASIBLE, INFEASIBLE, UNDECIDED };
enum { DECIDED = 0, LEFT = 1 };

#define MOST 64
#define NONE INT64_MAX
#define NEAR 1e-9L
#define LONGEST 50000
#define WORK 5000000

typedef struct {
    i64 n;
    const i64 *period, *wcet, *deadline;
    i64 order[MOST]; /* tasks by rank, highest priority first */
    int synchronous, verdict, decider;
    i64 *bound, *test;
} Set;

static i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

static void reject(Set *s, int test) {
    if (s->verdict != INFEASIBLE) {
        s->verdict = INFEASIBLE;
        s->decider = test;
    }
}

static void offer(Set *s, i64 task, i64 value, int test) {
    if (value < s->bound[task]) {
        s->bound[task] = value;
        s->test[task] = test;
    }
}

/* -1, 0 for below and above `limit`, 1 for too near to say */
static int compare(long double value, long double limit, int *over) {
    if (value > limit - NEAR && value < limit + NEAR) return LEFT;
    *over = value > limit;
    return DECIDED;
}

/* The first window of frame `frame` at or above `start` that holds the work of the first `above` tasks in order. */
static i64 window(const Set *s, i64 task, i64 above, i64 frame, i64 start, i64 limit) {
    i64 own = (frame + 1) * s->wcet[task], length = start > own ? start : own;
    for (;;) {
        i64 longer = own;
        for (i64 i = 0; i < above; i++)
            longer += ceil_div(length, s->period[s->order[i]]) * s->wcet[s->order[i]];
        if (longer <= length || longer > limit) return longer;
        length = longer;
    }
}

static i64 response(const Set *s, i64 task, i64 above, i64 limit) {
    i64 worst = -1, length = 0;
    for (i64 frame = 0;; frame++) {
        length = window(s, task, above, frame, length, limit);
        if (length > limit) return NONE;
        i64 value = length - frame * s->period[task];
        if (value > worst) worst = value;
        if (length <= (frame + 1) * s->period[task]) return worst;
    }
}

static int fixed_priorities(Set *s, int implicit, int constrained) {
    long double total = 0, product = 1;
    int monotonic = 1, over = 0;
    i64 longest = 0;
    for (i64 i = 0; i < s->n; i++) {
        i64 t = s->order[i];
        total += (long double)s->wcet[t] / s->period[t];
        product *= 1 + (long double)s->wcet[t] / s->period[t];
        if (i && s->period[s->order[i - 1]] > s->period[t]) monotonic = 0;
        if (s->period[t] > longest) longest = s->period[t];
        if (s->deadline[t] > longest) longest = s->deadline[t];
    }
    if (implicit && monotonic) {
        long double power = 1;
        for (i64 i = 0; i < s->n; i++) power *= 1 + total / s->n;
        if (compare(power, 2, &over)) return LEFT;
        if (!over)
            for (i64 t = 0; t < s->n; t++) offer(s, t, s->deadline[t], LIU_LAYLAND);
        if (compare(product, 2, &over)) return LEFT;
        if (!over)
            for (i64 t = 0; t < s->n; t++) offer(s, t, s->deadline[t], HYPERBOLIC);
    }
    int late = 0;
    if (constrained) {
        for (i64 i = 0; i < s->n; i++) {
            i64 t = s->order[i], value = response(s, t, i, s->period[t]);
            if (value != NONE) offer(s, t, value, RESPONSE_TIME);
            if (value == NONE || value > s->deadline[t]) late = 1;
        }
        if (late && s->synchronous) reject(s, RESPONSE_TIME);
    }
    long double load = 0;
    late = 0;
    for (i64 i = 0; i < s->n; i++) {
        i64 t = s->order[i];
        load += (long double)s->wcet[t] / s->period[t];
        if (compare(load, 1, &over)) return LEFT;
        if (over) continue;
        i64 value = response(s, t, i, 64 * longest);
        if (value == NONE) continue;
        offer(s, t, value, BUSY_PERIOD);
        if (value > s->deadline[t]) late = 1;
    }
    if (late && s->synchronous) reject(s, BUSY_PERIOD);
    return DECIDED;
}

static i64 busy_period(const Set *s) {
    i64 length = 0;
    for (i64 t = 0; t < s->n; t++) length += s->wcet[t];
    for (i64 step = 0; step < LONGEST; step++) {
        i64 longer = 0;
        for (i64 t = 0; t < s->n; t++) longer += ceil_div(length, s->period[t]) * s->wcet[t];
        if (longer == length) return length;
        length = longer;
    }
    return NONE;
}

/* The largest absolute deadline before `before`, -1 without one. */
static i64 last_due(const Set *s, i64 before) {
    i64 last = -1;
    for (i64 t = 0; t < s->n; t++)
        if (s->deadline[t] < before) {
            i64 due = s->deadline[t] + (before - 1 - s->deadline[t]) / s->period[t] * s->period[t];
            if (due > last) last = due;
        }
    return last;
}

static int overloaded(const Set *s, i64 busy) {
    for (i64 t = 0; t < s->n; t++)
        if (s->deadline[t] < s->wcet[t]) return 1;
    for (i64 interval = last_due(s, busy + 1); interval >= 0;) {
        i64 need = 0;
        for (i64 t = 0; t < s->n; t++)
            if (interval >= s->deadline[t])
                need += ((interval - s->deadline[t]) / s->period[t] + 1) * s->wcet[t];
        if (need > interval) return 1;
        interval = last_due(s, need == interval ? interval : need + 1);
    }
    return 0;
}

/* Spuri: the longest response over the deadline busy periods that begin with a job of `task` due as another is. */
static i64 spuri(const Set *s, i64 task, i64 busy) {
    i64 next[MOST], worst = -1, length = 0, last = -1;
    for (i64 t = 0; t < s->n; t++) {
        i64 first = t == task ? 0 : s->deadline[t] - s->deadline[task];
        next[t] = first >= 0 ? first : first + ceil_div(-first, s->period[t]) * s->period[t];
    }
    for (;;) {
        i64 arrival = busy, from = -1;
        for (i64 t = 0; t < s->n; t++)
            if (next[t] < arrival) {
                arrival = next[t];
                from = t;
            }
        if (from < 0) return worst;
        next[from] += s->period[from];
        if (arrival == last) continue;
        last = arrival;
        if (busy - arrival <= worst) return worst;
        i64 due = arrival + s->deadline[task];
        i64 least = (arrival / s->period[task] + 1) * s->wcet[task];
        if (least > length) length = least;
        for (;;) {
            i64 longer = least;
            for (i64 t = 0; t < s->n; t++)
                if (t != task && s->deadline[t] <= due) {
                    i64 jobs = ceil_div(length, s->period[t]), most = (due - s->deadline[t]) / s->period[t] + 1;
                    longer += (jobs < most ? jobs : most) * s->wcet[t];
                }
            if (longer <= length) break;
            length = longer;
        }
        i64 value = length - arrival;
        if (value < s->wcet[task]) value = s->wcet[task];
        if (value > worst) worst = value;
    }
}

static int earliest_deadline(Set *s, int implicit) {
    long double total = 0;
    int over = 0;
    for (i64 t = 0; t < s->n; t++) total += (long double)s->wcet[t] / s->period[t];
    if (compare(total, 1, &over)) return LEFT;
    if (implicit) {
        if (over) reject(s, EDF_UTILISATION);
        for (i64 t = 0; t < s->n && !over; t++) offer(s, t, s->deadline[t], EDF_UTILISATION);
    }
    i64 busy = over ? NONE : busy_period(s);
    if (!over && busy == NONE) return LEFT;
    if (over || overloaded(s, busy)) {
        if (s->synchronous) reject(s, QPA);
    } else
        for (i64 t = 0; t < s->n; t++) offer(s, t, s->deadline[t], QPA);
    if (over) return DECIDED;
    i64 arrivals = 0;
    for (i64 t = 0; t < s->n; t++) arrivals += busy / s->period[t] + 1;
    if (arrivals > WORK / (s->n * s->n)) return DECIDED;
    int late = 0;
    for (i64 t = 0; t < s->n; t++) {
        i64 value = spuri(s, t, busy);
        offer(s, t, value, SPURI);
        if (value > s->deadline[t]) late = 1;
    }
    if (late && s->synchronous) reject(s, SPURI);
    return DECIDED;
}

/* Analyse `sets` sets; set k has the tasks first[k] to first[k + 1], at most 64, in the order of their file.

   `edf[k]`: EDF, else fixed priorities by `rank` (0 highest).  Results: `bound` and `test` of every task (NONE and
   NO_TEST without one), `verdict` and `decider` of every set; `left[k]`: not decided here. */
void analyse_sets(i64 sets, const i64 *first, const i64 *period, const i64 *wcet, const i64 *deadline,
                  const i64 *offset, const i64 *rank, const i64 *edf, i64 *bound, i64 *test, i64 *verdict,
                  i64 *decider, i64 *left) {
    for (i64 k = 0; k < sets; k++) {
        i64 at = first[k], implicit = 1, constrained = 1, over = 0;
        Set s = {first[k + 1] - at, period + at, wcet + at, deadline + at};
        s.bound = bound + at;
        s.test = test + at;
        s.verdict = UNDECIDED;
        s.decider = NO_TEST;
        s.synchronous = 1;
        int too_long = 0, above = 0;
        long double total = 0;
        for (i64 t = 0; t < s.n; t++) {
            s.bound[t] = NONE;
            s.test[t] = NO_TEST;
            s.order[rank[at + t]] = t;
            if (offset[at + t] != offset[at]) s.synchronous = 0;
            if (s.deadline[t] < s.period[t]) implicit = 0;
            if (s.deadline[t] > s.period[t]) constrained = 0;
            if (s.wcet[t] > s.deadline[t]) too_long = 1;
            total += (long double)s.wcet[t] / s.period[t];
        }
        left[k] = compare(total, 1, &above);
        if (left[k]) continue;
        if (too_long || above) reject(&s, UTILISATION);
        left[k] = edf[k] ? earliest_deadline(&s, implicit) : fixed_priorities(&s, implicit, constrained);
        int met = 1;
        for (i64 t = 0; t < s.n; t++)
            if (s.bound[t] == NONE || s.bound[t] > s.deadline[t]) met = 0;
        if (s.verdict != INFEASIBLE && met) s.verdict = FEASIBLE;
        verdict[k] = s.verdict;
        decider[k] = s.decider;
    }
}
