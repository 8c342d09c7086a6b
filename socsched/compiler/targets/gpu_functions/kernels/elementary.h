/* Elementary functions made of exactly rounded operations, on the host, too (models/elementary.py, where the constants
   are explained).  Devices without double precision take their own: boxes then agree within a tolerance. */

#ifdef SINGLE_PRECISION
FUNCTION real exponential(real x)
{
    return exp(x);
}

FUNCTION real sine_of(real x, int shifted)
{
    return shifted ? cos(x) : sin(x);
}

FUNCTION real angle_of(real y, real x)
{
    return atan2(y, x);
}
#else
#define STEP(factor) sum = sum * x + (factor);

FUNCTION real exponential(real given)
{
    if (given != given)
        return given;
    if (given > 710)
        return INFINITY;
    if (given < -746)
        return 0;
    real whole = rint(given * 0x1.71547652b82fep+0);
    real x = (given - whole * 0x1.62e42fee00000p-1) - whole * 0x1.a39ef35793c76p-33;
    real sum = 1.0 / 6227020800.0;
    STEP(1.0 / 479001600) STEP(1.0 / 39916800) STEP(1.0 / 3628800) STEP(1.0 / 362880) STEP(1.0 / 40320)
    STEP(1.0 / 5040) STEP(1.0 / 720) STEP(1.0 / 120) STEP(1.0 / 24) STEP(1.0 / 6) STEP(1.0 / 2) STEP(1.0) STEP(1.0)
    return ldexp(sum, (int)whole);
}

/* The sine of a finite angle, the cosine if `shifted`. */
FUNCTION real sine_of(real given, int shifted)
{
    if (fabs(given) > 1e5)
        given = fmod(given, 0x1.921fb54442d18p+2);
    real quarters = rint(given * 0x1.45f306dc9c883p-1);
    real rest = ((given - quarters * 0x1.921fb54400000p+0) - quarters * 0x1.0b4611a600000p-34)
                - quarters * 0x1.3198a2e037073p-69;
    int turn = ((int)quarters & 3) + shifted;
    real x = rest * rest, sum;
    if (turn & 1) {
        sum = 1.0 / 20922789888000.0;
        STEP(-1.0 / 87178291200.0) STEP(1.0 / 479001600) STEP(-1.0 / 3628800) STEP(1.0 / 40320)
        STEP(-1.0 / 720) STEP(1.0 / 24) STEP(-1.0 / 2) STEP(1.0)
    } else {
        sum = 1.0 / 355687428096000.0;
        STEP(-1.0 / 1307674368000.0) STEP(1.0 / 6227020800.0) STEP(-1.0 / 39916800) STEP(1.0 / 362880)
        STEP(-1.0 / 5040) STEP(1.0 / 120) STEP(-1.0 / 6) STEP(1.0)
        sum = rest * sum;
    }
    return turn & 2 ? -sum : sum;
}

/* The angle of (x, y); 0 for the origin. */
FUNCTION real angle_of(real y, real x)
{
    real ax = fabs(x), ay = fabs(y), large = ax > ay ? ax : ay, small = ax > ay ? ay : ax, start = 0;
    real ratio = small == large ? (large > 0 ? 1 : 0) : small / large;
    if (ratio > 0.4142135623730951) {
        start = 0x1.921fb54442d18p-1;
        ratio = (ratio - 1) / (ratio + 1);
    }
    real square = ratio * ratio, sum = 1.0 / 33;
    for (int i = 15; i >= 0; i--)
        sum = (i & 1 ? -1.0 : 1.0) / (2 * i + 1) + sum * square;
    real angle = start + ratio * sum;
    if (ay > ax)
        angle = 0x1.921fb54442d18p+0 - angle;
    if (x < 0)
        angle = 0x1.921fb54442d18p+1 - angle;
    return copysign(angle, y);
}
#undef STEP
#endif

FUNCTION real sigmoid(real x)
{
    return 1 / (1 + exponential(-x));
}

FUNCTION real length_of(real x, real y)
{
    return sqrt(x * x + y * y);
}
