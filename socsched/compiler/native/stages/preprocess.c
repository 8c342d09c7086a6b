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
    floats *rows[2]; /* blended source rows: a pixel's channels, times 1, 2^8 and 2^16 */
    float *line;     /* a row of output for fp16 */
    int exact;       /* no column lies between two pixels, as when the ratio is odd */
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
    size_t width = ((size_t)p->fit_width + LANES - 1) / LANES * LANES;
    out->left = part(&from, width, sizeof(int32_t));
    out->right = part(&from, width, sizeof(int32_t));
    out->weight = part(&from, width, sizeof(float));
    for (int i = 0; i < 2; i++)
        out->rows[i] = part(&from, width, sizeof(floats));
    out->line = part(&from, 3 * (size_t)p->output_width, sizeof(float));
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

/* The three channels of a pixel in the low bytes. */
ALWAYS uint32_t pixel(int format, const uint8_t *row, const uint8_t *chroma, int64_t plane, int32_t x)
{
    uint32_t word;
    if (format == SOCSCHED_NV12) {
        const uint8_t *pair = chroma + (x & ~1);
        return row[x] | (uint32_t)pair[0] << 8 | (uint32_t)pair[1] << 16;
    }
    if (format == SOCSCHED_PLANAR_RGB)
        return row[x] | (uint32_t)row[plane + x] << 8 | (uint32_t)row[2 * plane + x] << 16;
    memcpy(&word, row + 3 * x, 4);
    return word;
}

ALWAYS uint32_t last_pixel(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
}

/* The three channels as floats, times 1, 2^8 and 2^16: shifts of single lanes are slow, and powers of two exact. */
ALWAYS floats widened(uint32_t word)
{
    ints lanes = (ints){0, 0, 0, 0} + (int32_t)word;
    lanes &= (ints){0xff, 0xff00, 0xff0000, 0};
    return __builtin_convertvector(lanes, floats);
}

/* A source row blended along x.  Reading four bytes a pixel would pass the end of an interleaved image. */
ALWAYS void blend_as(int format, int exact, const socsched_preprocess_params *p, const uint8_t *image,
                     int32_t y, const arrays *parts, floats *restrict blended)
{
    const int64_t plane = (int64_t)p->height * p->width;
    const int packed = format == SOCSCHED_RGB || format == SOCSCHED_BGR;
    const uint8_t *row = image + (int64_t)y * p->width * (packed ? 3 : 1);
    const uint8_t *chroma = image + plane + (int64_t)(y / 2) * p->width;
    int32_t safe = p->fit_width;
    if (packed && y == p->height - 1)
        while (safe > 0 && parts->right[safe - 1] == p->width - 1)
            safe--;
    for (int32_t x = 0; x < safe; x++) {
        blended[x] = widened(pixel(format, row, chroma, plane, parts->left[x]));
        if (!exact)
            blended[x] += (widened(pixel(format, row, chroma, plane, parts->right[x])) - blended[x]) * parts->weight[x];
    }
    for (int32_t x = safe; x < p->fit_width; x++) {
        floats near = widened(last_pixel(row + 3 * (int64_t)parts->left[x]));
        floats far = widened(last_pixel(row + 3 * (int64_t)parts->right[x]));
        blended[x] = near + (far - near) * parts->weight[x];
    }
}

ALWAYS void blend_in(int format, const socsched_preprocess_params *p, const uint8_t *image, int32_t y,
                     const arrays *parts, floats *blended)
{
    if (parts->exact)
        blend_as(format, 1, p, image, y, parts, blended);
    else
        blend_as(format, 0, p, image, y, parts, blended);
}

static void blend(const socsched_preprocess_params *p, const uint8_t *image, int32_t y, const arrays *parts,
                  floats *blended)
{
    if (p->format == SOCSCHED_NV12)
        blend_in(SOCSCHED_NV12, p, image, y, parts, blended);
    else if (p->format == SOCSCHED_PLANAR_RGB)
        blend_in(SOCSCHED_PLANAR_RGB, p, image, y, parts, blended);
    else
        blend_in(SOCSCHED_RGB, p, image, y, parts, blended);
}

/* Values of at least 0 and at most 255. */
ALWAYS floats held(floats value)
{
    const floats most = {255, 255, 255, 255};
    value = (floats)((ints)value & (value > 0));
    ints below = value < most;
    return (floats)(((ints)value & below) | ((ints)most & ~below));
}

/* Two blended rows, blended along y: R, G and B of pixel x go to target[x * step + channel * apart]. */
ALWAYS void finish_as(int yuv, const socsched_preprocess_params *p, const floats *restrict above,
                      const floats *restrict below, float weight, float *restrict target, int64_t step, int64_t apart)
{
    static const float exact[3] = {1, 1.0f / 256, 1.0f / 65536};
    int lane[3];
    float gain[3];
    for (int c = 0; c < 3; c++) {
        lane[c] = p->format == SOCSCHED_BGR ? 2 - c : c;
        gain[c] = yuv ? p->gain[c] : p->gain[c] * exact[lane[c]];
    }
    for (int64_t x = 0; x < p->fit_width; x += LANES) {
        floats pixels[LANES], channels[3], result[3];
        for (int i = 0; i < LANES; i++)
            pixels[i] = above[x + i] + (below[x + i] - above[x + i]) * weight;
        floats first = PICK(pixels[0], pixels[1], 0, 4, 1, 5), second = PICK(pixels[2], pixels[3], 0, 4, 1, 5);
        channels[0] = PICK(first, second, 0, 1, 4, 5);
        channels[1] = PICK(first, second, 2, 3, 6, 7);
        channels[2] = PICK(PICK(pixels[0], pixels[1], 2, 6, 2, 6), PICK(pixels[2], pixels[3], 2, 6, 2, 6), 0, 1, 4, 5);
        if (yuv) {
            floats luma = channels[0] - 16, u = channels[1] * exact[1] - 128, v = channels[2] * exact[2] - 128;
            luma = (floats)((ints)luma & (luma > 0)) * p->luma;
            channels[0] = held(luma + v * p->red_v);
            channels[1] = held(luma + u * p->green_u + v * p->green_v);
            channels[2] = held(luma + u * p->blue_u);
        }
        for (int c = 0; c < 3; c++)
            result[c] = channels[lane[c]] * gain[c] - p->bias[c];
        if (step == 1 && x + LANES <= p->fit_width)
            for (int c = 0; c < 3; c++)
                memcpy(target + x + c * apart, result + c, sizeof(floats));
        else
            for (int64_t i = 0; i < smaller(LANES, p->fit_width - x); i++)
                for (int c = 0; c < 3; c++)
                    target[(x + i) * step + c * apart] = result[c][i];
    }
}

static void finish(const socsched_preprocess_params *p, const floats *above, const floats *below, float weight,
                        float *target, int64_t step, int64_t apart)
{
    if (p->format == SOCSCHED_NV12)
        finish_as(1, p, above, below, weight, target, step, apart);
    else
        finish_as(0, p, above, below, weight, target, step, apart);
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

#if defined(__x86_64__) && defined(__GNUC__)
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
#else
static int64_t halve_most(const float *from, uint16_t *to, int64_t count) { return 0; }

static int converts(void) { return 0; }
#endif

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
static void fill(const socsched_preprocess_params *p, float *line, int64_t step, int64_t apart, int32_t from,
                 int32_t until)
{
    for (int c = 0; c < 3; c++)
        for (int32_t x = from; x < until; x++)
            line[x * step + c * apart] = p->padding[c];
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
    const int64_t width = p->output_width, plane = width * p->output_height;
    const int64_t step = p->channels_last ? 3 : 1, apart = p->channels_last ? 1 : p->half ? width : plane;
    int32_t held_rows[2] = {-1, -1};
    for (int32_t row = first_row; row < last_row; row++) {
        float *line = p->half ? parts.line : (float *)output + row * width * step;
        const int32_t y = row - p->top, inside = y >= 0 && y < p->fit_height;
        fill(p, line, step, apart, 0, inside ? p->left : p->output_width);
        if (inside) {
            int32_t wanted[2];
            float weight = neighbours(y, p->height, p->fit_height, wanted, wanted + 1);
            if (held_rows[1] == wanted[0]) { /* when enlarging, rows are used again */
                floats *spare = parts.rows[0];
                parts.rows[0] = parts.rows[1], parts.rows[1] = spare;
                held_rows[1] = held_rows[0], held_rows[0] = wanted[0];
            }
            for (int i = 0; i < (weight == 0 ? 1 : 2); i++)
                if (held_rows[i] != wanted[i]) {
                    blend(p, image, wanted[i], &parts, parts.rows[i]);
                    held_rows[i] = wanted[i];
                }
            finish(p, parts.rows[0], parts.rows[weight != 0], weight, line + p->left * step, step,
                   apart);
            fill(p, line, step, apart, p->left + p->fit_width, p->output_width);
        }
        if (p->half && p->channels_last)
            halve(line, (uint16_t *)output + row * width * 3, width * 3);
        else if (p->half)
            for (int c = 0; c < 3; c++)
                halve(line + c * width, (uint16_t *)output + c * plane + row * width, width);
    }
    return last_row - first_row;
}
