/* Camera images resized and normalised (models/camera.py). */
#include "common.h"

enum { LANES = 4 };
typedef float floats __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(16)));

#ifdef __clang__
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (ints){i, j, k, l})
#endif

typedef struct {
    int32_t *left, *right; /* neighbours of every column of the rectangle, and the weight of the second */
    float *weight;
    uint32_t *rows[2][2];  /* two source rows: left and right pixels of every column, channels in the low bytes */
    float *line, *mixed;   /* a row of output in fp32: one channel after the other, and interleaved */
    int exact;             /* no column lies between two pixels, as when the ratio is odd */
} arrays;

static int usable(const socsched_preprocess_params *p)
{
    return p && p->format >= SOCSCHED_RGB && p->format <= SOCSCHED_NV12 && p->height > 0 && p->width > 0 &&
           p->output_height > 0 && p->output_width > 0 && p->fit_height > 0 && p->fit_width > 0 && p->top >= 0 &&
           p->left >= 0 && p->top <= p->output_height - p->fit_height && p->left <= p->output_width - p->fit_width &&
           (int64_t)p->height * p->width <= MOST_CELLS && (int64_t)p->output_height * p->output_width <= MOST_CELLS &&
           (p->format != SOCSCHED_NV12 || (p->height % 2 == 0 && p->width % 2 == 0));
}

static size_t share(const socsched_preprocess_params *p, void *workspace, arrays *out)
{
    room from = {workspace, 0};
    const size_t width = p->fit_width, values = 3 * (size_t)p->output_width;
    out->left = part(&from, width, sizeof(int32_t));
    out->right = part(&from, width, sizeof(int32_t));
    out->weight = part(&from, width, sizeof(float));
    for (int i = 0; i < 4; i++)
        out->rows[i / 2][i % 2] = part(&from, width, sizeof(uint32_t));
    out->line = part(&from, values, sizeof(float));
    out->mixed = part(&from, p->half && p->channels_last ? values : 0, sizeof(float));
    return from.used;
}

size_t socsched_preprocess_workspace(const socsched_preprocess_params *params)
{
    arrays parts;
    return usable(params) ? share(params, NULL, &parts) : 0;
}

/* Both neighbours of pixel `index` of `target` in a row or column of `source` pixels; returns the second's weight. */
static float neighbours(int32_t index, int32_t source, int32_t target, int32_t *first, int32_t *second)
{
    double centre = (index + 0.5) * source / target - 0.5, last = source - 1;
    centre = centre > 0 ? centre : 0;
    centre = centre < last ? centre : last;
    *first = (int32_t)centre;
    *second = *first < centre ? *first + 1 : *first;
    return (float)(centre - *first);
}

/* The pixels `columns` of a source row.  Asks for the row needed after the next, as processors do not foresee which. */
static void gather(const socsched_preprocess_params *p, const uint8_t *image, int32_t y, const int32_t *restrict columns,
                   uint32_t *restrict pixels)
{
    const int64_t plane = (int64_t)p->height * p->width, width = p->fit_width;
    const int planar = p->format == SOCSCHED_NV12 || p->format == SOCSCHED_PLANAR_RGB;
    const int64_t pitch = (int64_t)p->width * (planar ? 1 : 3);
    const uint8_t *row = image + y * pitch, *chroma = image + plane + (int64_t)(y / 2) * p->width;
    const int32_t skip = (p->height - 1) / p->fit_height + 1;
    const int64_t ahead = y + skip < p->height ? skip * pitch : 0;
    if (p->format == SOCSCHED_NV12)
        for (int64_t x = 0; x < width; x++) {
            uint16_t pair;
            memcpy(&pair, chroma + (columns[x] & ~1), 2);
            pixels[x] = row[columns[x]] | (uint32_t)pair << 8;
            __builtin_prefetch(row + columns[x] + ahead);
        }
    else if (p->format == SOCSCHED_PLANAR_RGB)
        for (int64_t x = 0; x < width; x++) {
            const uint8_t *at = row + columns[x];
            pixels[x] = at[0] | (uint32_t)at[plane] << 8 | (uint32_t)at[2 * plane] << 16;
        }
    else if (y == p->height - 1) /* four bytes of the last pixel would pass the end of the image */
        for (int64_t x = 0; x < width; x++) {
            const uint8_t *at = row + 3 * (int64_t)columns[x];
            pixels[x] = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
        }
    else
        for (int64_t x = 0; x < width; x++) {
            const uint8_t *at = row + 3 * (int64_t)columns[x];
            memcpy(pixels + x, at, 4);
            __builtin_prefetch(at + ahead);
        }
}

ALWAYS float channel(uint32_t pixel, int number) { return (float)(int32_t)(pixel >> 8 * number & 0xff); }

ALWAYS float blended(float first, float second, float weight) { return first + (second - first) * weight; }

ALWAYS float held(float value)
{
    value = value > 0 ? value : 0;
    return value < 255 ? value : 255;
}

/* The pixels of two source rows blended along x, then along y, and normalised; `apart` floats between channels. */
ALWAYS void finish_as(int yuv, int exact, const socsched_preprocess_params *p, const arrays *parts, int second,
                      float weight, float *line, int64_t apart)
{
    const uint32_t *restrict near = parts->rows[0][0], *restrict far = parts->rows[0][1];
    const uint32_t *restrict near_below = parts->rows[second][0], *restrict far_below = parts->rows[second][1];
    const float *restrict weights = parts->weight;
    const int64_t order = p->format == SOCSCHED_BGR ? 2 : 0; /* the channel of the first byte */
    float *restrict first = line + order * apart, *restrict middle = line + apart;
    float *restrict last = line + (2 - order) * apart;
    const float gain[3] = {p->gain[order], p->gain[1], p->gain[2 - order]};
    const float bias[3] = {p->bias[order], p->bias[1], p->bias[2 - order]};
    const float gains = p->luma, red_v = p->red_v, green_u = p->green_u, green_v = p->green_v, blue_u = p->blue_u;
    for (int64_t x = 0; x < p->fit_width; x++) {
        float value[3];
        for (int c = 0; c < 3; c++) {
            float above = channel(near[x], c), below = channel(near_below[x], c);
            if (!exact) {
                above = blended(above, channel(far[x], c), weights[x]);
                below = blended(below, channel(far_below[x], c), weights[x]);
            }
            value[c] = blended(above, below, weight);
        }
        if (yuv) {
            const float light = value[0] - 16, u = value[1] - 128, v = value[2] - 128;
            const float luma = (light > 0 ? light : 0) * gains;
            value[0] = held(luma + v * red_v);
            value[1] = held(luma + u * green_u + v * green_v);
            value[2] = held(luma + u * blue_u);
        }
        first[x] = value[0] * gain[0] - bias[0];
        middle[x] = value[1] * gain[1] - bias[1];
        last[x] = value[2] * gain[2] - bias[2];
    }
}

ALWAYS void finish_any(const socsched_preprocess_params *p, const arrays *parts, int second, float weight, float *line,
                       int64_t apart)
{
    if (p->format == SOCSCHED_NV12 && parts->exact)
        finish_as(1, 1, p, parts, second, weight, line, apart);
    else if (p->format == SOCSCHED_NV12)
        finish_as(1, 0, p, parts, second, weight, line, apart);
    else if (parts->exact)
        finish_as(0, 1, p, parts, second, weight, line, apart);
    else
        finish_as(0, 0, p, parts, second, weight, line, apart);
}

/* Four floats as fp16 in the low halves, rounded to nearest even, as IEEE 754 converts. */
ALWAYS ints halves(floats size)
{
    ints sign = (ints)size >> 16 & 0x8000, bits = (ints)size & 0x7fffffff;
    /* The sum's last bits are those of a subnormal half, rounded. */
    ints small = (ints)((floats)bits + 0.5f) - 0x3f000000;
    ints normal = (bits - 0x37fff001 + (bits >> 13 & 1)) >> 13;
    ints large = 0x7c00 + ((bits > 0x7f800000) & 0x200);
    ints tiny = bits < 0x38800000, fits = bits < 0x47800000;
    return (small & tiny) | (normal & ~tiny & fits) | (large & ~fits) | sign;
}

/* Little endian: a word holds an even float's half below that of the next. */
ALWAYS void halve_eight(const float *from, uint16_t *to)
{
    floats first, second;
    memcpy(&first, from, sizeof first);
    memcpy(&second, from + LANES, sizeof second);
    ints even = halves(PICK(first, second, 0, 2, 4, 6)), odd = halves(PICK(first, second, 1, 3, 5, 7));
    even |= odd << 16;
    memcpy(to, &even, sizeof even);
}

/* SOCSCHED_128_BIT: vectors as wide as those of Arm's cores, for measurements that stand for these. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(SOCSCHED_128_BIT)
/* As halve_eight, by the processor's own conversion; returns how many were converted. */
__attribute__((target("avx,f16c"))) static int64_t halve_most(const float *from, uint16_t *to, int64_t count)
{
    typedef float wide __attribute__((vector_size(32)));
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        wide values;
        memcpy(&values, from + i, sizeof values);
        __auto_type result = __builtin_ia32_vcvtps2ph256(values, 0); /* to nearest even */
        memcpy(to + i, &result, sizeof result);
    }
    return i;
}

static int converts(void) { return __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c"); }

__attribute__((target("avx2"))) static void finish_wide(const socsched_preprocess_params *p, const arrays *parts,
                                                        int second, float weight, float *line, int64_t apart)
{
    finish_any(p, parts, second, weight, line, apart);
}

static int widens(void) { return __builtin_cpu_supports("avx2"); }
#else
static int64_t halve_most(const float *from, uint16_t *to, int64_t count) { return 0; }

static int converts(void) { return 0; }

#define finish_wide finish_any

static int widens(void) { return 0; }
#endif

static void finish(const socsched_preprocess_params *p, const arrays *parts, int second, float weight, float *line,
                   int64_t apart)
{
    if (widens())
        finish_wide(p, parts, second, weight, line, apart);
    else
        finish_any(p, parts, second, weight, line, apart);
}

static void halve(const float *from, uint16_t *to, int64_t count)
{
    int64_t i = converts() ? halve_most(from, to, count) : 0;
    for (; i + 8 <= count; i += 8)
        halve_eight(from + i, to + i);
    float rest[8] = {0};
    uint16_t result[8];
    for (int64_t k = i; k < count; k++)
        rest[k - i] = from[k];
    halve_eight(rest, result);
    memcpy(to + i, result, (count - i) * sizeof *to);
}

/* Pads the pixels `from` to `until` - 1 of a row of output. */
static void fill(const socsched_preprocess_params *p, float *line, int64_t apart, int32_t from, int32_t until)
{
    for (int c = 0; c < 3; c++)
        for (int32_t x = from; x < until; x++)
            line[c * apart + x] = p->padding[c];
}

/* Row `row` of output, from `line` with its channels `width` apart. */
static void store(const socsched_preprocess_params *p, const arrays *parts, void *output, int64_t row)
{
    const int64_t width = p->output_width, plane = width * p->output_height;
    const float *restrict line = parts->line;
    if (p->channels_last) {
        float *restrict mixed = p->half ? parts->mixed : (float *)output + row * width * 3;
        for (int64_t x = 0; x < width; x++)
            mixed[3 * x] = line[x], mixed[3 * x + 1] = line[width + x], mixed[3 * x + 2] = line[2 * width + x];
        if (p->half)
            halve(mixed, (uint16_t *)output + row * width * 3, width * 3);
    } else
        for (int c = 0; c < 3; c++)
            halve(line + c * width, (uint16_t *)output + c * plane + row * width, width);
}

int64_t socsched_preprocess(const socsched_preprocess_params *params, const uint8_t *image, void *output,
                            int32_t first_row, int32_t last_row, void *workspace, size_t workspace_bytes)
{
    const socsched_preprocess_params *p = params;
    if (!usable(p))
        return SOCSCHED_BAD_PARAMS;
    if (!image || !output || first_row < 0 || last_row < first_row || last_row > p->output_height)
        return SOCSCHED_BAD_INPUT;
    if (unfit(workspace, workspace_bytes, socsched_preprocess_workspace(p)))
        return SOCSCHED_SMALL_WORKSPACE;
    arrays parts;
    share(p, workspace, &parts);
    parts.exact = 1;
    for (int32_t x = 0; x < p->fit_width; x++) {
        parts.weight[x] = neighbours(x, p->width, p->fit_width, parts.left + x, parts.right + x);
        parts.exact &= parts.weight[x] == 0;
    }
    const int64_t width = p->output_width;
    const int direct = !p->half && !p->channels_last;
    const int64_t apart = direct ? width * p->output_height : width;
    int32_t held_rows[2] = {-1, -1};
    for (int32_t row = first_row; row < last_row; row++) {
        float *line = direct ? (float *)output + row * width : parts.line;
        const int32_t y = row - p->top, inside = y >= 0 && y < p->fit_height;
        fill(p, line, apart, 0, inside ? p->left : p->output_width);
        if (inside) {
            int32_t wanted[2];
            float weight = neighbours(y, p->height, p->fit_height, wanted, wanted + 1);
            if (held_rows[1] == wanted[0]) { /* when enlarging, rows are used again */
                for (int i = 0; i < 2; i++) {
                    uint32_t *spare = parts.rows[0][i];
                    parts.rows[0][i] = parts.rows[1][i], parts.rows[1][i] = spare;
                }
                held_rows[1] = held_rows[0], held_rows[0] = wanted[0];
            }
            for (int i = 0; i < (weight == 0 ? 1 : 2); i++)
                if (held_rows[i] != wanted[i]) {
                    gather(p, image, wanted[i], parts.left, parts.rows[i][0]);
                    if (!parts.exact)
                        gather(p, image, wanted[i], parts.right, parts.rows[i][1]);
                    held_rows[i] = wanted[i];
                }
            finish(p, &parts, weight != 0, weight, line + p->left, apart);
            fill(p, line, apart, p->left + p->fit_width, p->output_width);
        }
        if (!direct)
            store(p, &parts, output, row);
    }
    return last_row - first_row;
}
