/* Host stages of the built-in models: one function per stage, called by the Python runtime (native/host_stages.py) and by
   native executors.

   Every function takes its params, its inputs, its outputs and a workspace, allocates nothing, keeps no state between
   calls and may run in several threads at once, each with its own outputs and workspace.  It returns a count of at
   least 0, or one of the errors below.  NaN, infinities and values out of range are allowed in all data.  Arrays are
   dense and in C order; floats are IEEE 754.  `*_workspace` returns the bytes that the stage needs for its params, 0 if
   the params are unusable; a workspace is aligned to 64 bytes, and its content does not matter.

   The reference is the numpy code named with each function.  Results equal it bit for bit on every machine: both use
   the same order of basic operations and the elementary functions of elementary.h (models/elementary.py).  Compile
   without contraction and reassociation (-ffp-contract=off, no -ffast-math). */
#ifndef SOCSCHED_STAGES_H
#define SOCSCHED_STAGES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SOCSCHED_BAD_PARAMS = -1,      /* a size is not positive, or a product of sizes too large */
    SOCSCHED_BAD_INPUT = -2,       /* a null pointer or a negative count */
    SOCSCHED_SMALL_WORKSPACE = -3, /* fewer bytes than `*_workspace` returns, or not aligned */
};

/* models/pointpillars/voxelise.py, models/centerpoint/voxelise.py.

   points[count][4] -> voxels[P][max_points][4], counts[P], coords[P][2] (x, y).  P, the returned number of pillars, is
   at most max_pillars, count and the number of cells; the outputs have room for that many.  Only the first P pillars
   are written. */
typedef struct {
    float low[3], size[3];            /* corner of the range and size of a cell, m */
    int32_t cells[3];                 /* cells along x, y and z */
    int32_t max_pillars, max_points;
    int32_t clear_fourth;             /* 1: the fourth value of every point becomes 0 */
} socsched_voxelise_params;

size_t socsched_voxelise_workspace(const socsched_voxelise_params *params);
int64_t socsched_voxelise(const socsched_voxelise_params *params, const float *points, int64_t count, float *voxels,
                          int32_t *counts, int32_t *coords, void *workspace, size_t workspace_bytes);

/* models/pointpillars/decode.py.

   logits[KINDS][CLASSES][rows * columns], offsets[KINDS][7][...], directions[KINDS][2][...] -> boxes[K][7], scores[K],
   labels[K], best first; K <= max_boxes is returned.  *dropped is the number of anchors with non-finite values. */
enum { SOCSCHED_KINDS = 6, SOCSCHED_CLASSES = 3 };

typedef struct {
    double score, iou, turn;          /* as in Settings of the reference */
    double least_logit;               /* anchors below cannot reach `score`: its logit less a margin */
    double origin[2], step[2];        /* anchors stand at origin + index * step (x, y), the last ones at `last` */
    float last[2];
    float anchors[SOCSCHED_KINDS][7]; /* boxes of a cell at the origin */
    int32_t rows, columns, candidates, max_boxes;
} socsched_anchors_params;

size_t socsched_decode_anchors_workspace(const socsched_anchors_params *params);
int64_t socsched_decode_anchors(const socsched_anchors_params *params, const float *logits, const float *offsets,
                                const float *directions, float *boxes, float *scores, int32_t *labels,
                                int64_t *dropped, void *workspace, size_t workspace_bytes);

/* models/centerpoint/decode.py.

   heat[CLASSES][rows * columns], reg[2][...], height[1][...], dim[3][...], rot[2][...], vel[2][...] -> boxes[K][7],
   scores[K], labels[K], velocities[K][2], best first. */
enum { SOCSCHED_MOST_CLASSES = 16 };

typedef struct {
    double score, circle, iou, search;      /* `search`: boxes farther apart (m) are not compared */
    double least_logit;
    double origin[2], step[2];              /* a cell's corner is origin + index * step (x, y) */
    float least_heading[SOCSCHED_MOST_CLASSES]; /* least length of the heading vector by class */
    int32_t classes, rows, columns, candidates, max_boxes;
} socsched_centres_params;

size_t socsched_decode_centres_workspace(const socsched_centres_params *params);
int64_t socsched_decode_centres(const socsched_centres_params *params, const float *heat, const float *reg,
                                const float *height, const float *dim, const float *rot, const float *vel,
                                float *boxes, float *scores, int32_t *labels, float *velocities, int64_t *dropped,
                                void *workspace, size_t workspace_bytes);

/* models/camera_decode.py.

   maps[ANCHORS][5 + CLASSES][rows * columns] -> boxes[K][4] (left, top, right, bottom), scores[K], labels[K]. */
enum { SOCSCHED_IMAGE_ANCHORS = 5, SOCSCHED_IMAGE_CLASSES = 3 };

typedef struct {
    double score, iou;
    double least_logit;
    double sizes[SOCSCHED_IMAGE_ANCHORS][2]; /* width and height of the anchors in cells */
    double scale[2], shift[2];               /* pixels of the image per cell, and those that padding adds (x, y) */
    double limit[2];                         /* width and height of the image */
    int32_t rows, columns, candidates, max_boxes;
} socsched_image_boxes_params;

size_t socsched_decode_image_boxes_workspace(const socsched_image_boxes_params *params);
int64_t socsched_decode_image_boxes(const socsched_image_boxes_params *params, const float *maps, float *boxes,
                                    float *scores, int32_t *labels, int64_t *dropped, void *workspace,
                                    size_t workspace_bytes);

/* models/camera.py.

   Resizes an 8-bit image bilinearly into a rectangle of the output and normalises it; the rest of the output is
   padding.  Output rows first_row to last_row - 1 are written, so that several threads can share a frame; returns their
   number.  Colours are R, G, B in the output. */
enum { SOCSCHED_RGB, SOCSCHED_BGR, SOCSCHED_PLANAR_RGB, SOCSCHED_NV12 };

typedef struct {
    int32_t format;                   /* NV12: height + height / 2 rows, both sides even */
    int32_t height, width;            /* of the image */
    int32_t output_height, output_width;
    int32_t top, left, fit_height, fit_width; /* rectangle of the output that the image fills */
    int32_t half;                     /* 1: fp16 output */
    int32_t channels_last;            /* 1: [rows][columns][3], 0: [3][rows][columns] */
    float gain[3], bias[3], padding[3]; /* output = pixel * gain - bias, or padding */
    float luma, red_v, green_u, green_v, blue_u; /* NV12: gains of luma (less 16) and of chroma (less 128) */
} socsched_preprocess_params;

size_t socsched_preprocess_workspace(const socsched_preprocess_params *params);
int64_t socsched_preprocess(const socsched_preprocess_params *params, const uint8_t *image, void *output,
                            int32_t first_row, int32_t last_row, void *workspace, size_t workspace_bytes);

/* Let numbers below the least normal one count as 0 from now on, for the calling thread and those it starts; return what
   socsched_restore_floats takes to undo it.

   For networks only: processors take up to a hundred times longer for such numbers, and what a stage takes must not
   depend on its data.  Host stages compute with them, as numpy does. */
uint64_t socsched_flush_floats(void);
void socsched_restore_floats(uint64_t before);

#ifdef __cplusplus
}
#endif
#endif
