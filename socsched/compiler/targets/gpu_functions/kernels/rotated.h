/* Overlap of rotated footprints (models/pointpillars/nms.py), operation by operation as there.

   A footprint is x, y, w, l, cosine and sine of its heading, half its diagonal. */

FUNCTION void put_footprint(GLOBAL real *place, float x, float y, float w, float l, float ry)
{
    real heading = -(real)ry - HALF_PI;
    place[0] = x;
    place[1] = y;
    place[2] = w;
    place[3] = l;
    place[4] = sine_of(heading, 1);
    place[5] = sine_of(heading, 0);
    place[6] = length_of(w, l) / 2;
}

FUNCTION real between(real value, real low, real high)
{
    value = value > low ? value : low;
    return value < high ? value : high;
}

FUNCTION real fraction(real distance, real step)
{
    real value = distance / step;
    return value != value ? 0 : between(value, 0, 1);
}

FUNCTION real shared_area(const GLOBAL real *a, const GLOBAL real *b)
{
    real u[4], v[4], area = 0, dx = a[0] - b[0], dy = a[1] - b[1], half_l = b[3] / 2, half_w = b[2] / 2;
    for (int k = 0; k < 4; k++) {
        real along = k == 0 || k == 3 ? a[3] / 2 : -a[3] / 2, across = k < 2 ? a[2] / 2 : -a[2] / 2;
        real x = dx + along * a[4] - across * a[5], y = dy + along * a[5] + across * a[4];
        u[k] = x * b[4] + y * b[5];
        v[k] = y * b[4] - x * b[5];
    }
    for (int k = 0; k < 4; k++) {
        int next = (k + 1) % 4;
        real du = u[next] - u[k], dv = v[next] - v[k];
        real e0 = fraction(-half_l - u[k], du), e1 = fraction(half_l - u[k], du);
        real t0 = fraction(-half_w - v[k], dv), t1 = fraction(half_w - v[k], dv);
        real from = e0 < e1 ? e0 : e1, to = e0 < e1 ? e1 : e0;
        real enter = between(t0 < t1 ? t0 : t1, from, to), leave = between(t0 < t1 ? t1 : t0, from, to);
        real h0 = between(v[k] + from * dv, -half_w, half_w), h1 = between(v[k] + enter * dv, -half_w, half_w);
        real h2 = between(v[k] + leave * dv, -half_w, half_w), h3 = between(v[k] + to * dv, -half_w, half_w);
        real integral = (enter - from) * (h1 + h0);
        integral += (leave - enter) * (h2 + h1);
        integral += (to - leave) * (h3 + h2);
        area += integral / 2 * du;
    }
    return area < 0 ? -area : 0;
}

/* Whether two footprints share more than `least` of their union. */
FUNCTION int overlap(const GLOBAL real *a, const GLOBAL real *b, real least)
{
    real dx = a[0] - b[0], dy = a[1] - b[1], reach = a[6] + b[6];
    if (!(dx * dx + dy * dy <= reach * reach))
        return 0 > least;
    real both = shared_area(a, b), whole = a[2] * a[3] + b[2] * b[3] - both;
    return (whole > 0 ? both / whole : 0) > least;
}
