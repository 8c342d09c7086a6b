/* Elementary functions made of IEEE 754's exactly rounded operations alone, so that results are the same on every
   machine and in numpy (models/elementary.py, where the constants are explained). */
#ifndef SOCSCHED_ELEMENTARY_H
#define SOCSCHED_ELEMENTARY_H

#include <math.h>
#include <stdint.h>

static const double EXP_TERMS[14] = {
    1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800,
    1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0,
};
static const double SIN_TERMS[9] = {
    1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0,
    1.0 / 355687428096000.0,
};
static const double COS_TERMS[9] = {
    1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200.0,
    1.0 / 20922789888000.0,
};

static inline double terms(const double *factors, int count, double x)
{
    double sum = factors[count - 1];
    for (int i = count - 2; i >= 0; i--)
        sum = sum * x + factors[i];
    return sum;
}

static inline double exponential(double x)
{
    if (x != x)
        return x;
    if (x > 710)
        return INFINITY;
    if (x < -746)
        return 0;
    double whole = rint(x * 0x1.71547652b82fep+0);
    double rest = (x - whole * 0x1.62e42fee00000p-1) - whole * 0x1.a39ef35793c76p-33;
    return ldexp(terms(EXP_TERMS, 14, rest), (int)whole);
}

static inline double sigmoid(double x)
{
    return 1 / (1 + exponential(-x));
}

/* Angles are finite. */
static inline void sine_cosine(double x, double *sine, double *cosine)
{
    if (fabs(x) > 1e5)
        x = fmod(x, 0x1.921fb54442d18p+2);
    double quarters = rint(x * 0x1.45f306dc9c883p-1);
    double rest = ((x - quarters * 0x1.921fb54400000p+0) - quarters * 0x1.0b4611a600000p-34) -
                  quarters * 0x1.3198a2e037073p-69;
    double square = rest * rest, s = rest * terms(SIN_TERMS, 9, square), c = terms(COS_TERMS, 9, square);
    int turn = (int)quarters & 3;
    *sine = turn & 1 ? c : s;
    *cosine = turn & 1 ? s : c;
    if (turn & 2)
        *sine = -*sine;
    if (turn == 1 || turn == 2)
        *cosine = -*cosine;
}

/* The angle of (x, y); 0 for the origin. */
static inline double angle_of(double y, double x)
{
    double ax = fabs(x), ay = fabs(y), large = ax > ay ? ax : ay, small = ax > ay ? ay : ax;
    double start = 0;
    double ratio = small == large ? large > 0 : small / large;
    if (ratio > 0.4142135623730951) {
        start = 0x1.921fb54442d18p-1;
        ratio = (ratio - 1) / (ratio + 1);
    }
    double square = ratio * ratio, sum = 1.0 / 33;
    for (int i = 15; i >= 0; i--)
        sum = (i & 1 ? -1.0 : 1.0) / (2 * i + 1) + sum * square;
    double angle = start + ratio * sum;
    if (ay > ax)
        angle = 0x1.921fb54442d18p+0 - angle;
    if (x < 0)
        angle = 0x1.921fb54442d18p+1 - angle;
    return copysign(angle, y);
}

#endif
