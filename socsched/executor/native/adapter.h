/* An adapter runs artefacts that a vendor's compiler made: it loads one, and runs it over tensors in host memory, or in
 * memory of the first GPU if it shares that.
 *
 * Adapters for libraries with a C interface are part of the executor and load the vendor's library at run time.  Others
 * (TensorRT) are compiled on the board, where their headers are, to a shared object with the function
 * `const socsched_adapter* socsched_adapter_of_board(void)`.
 */
#ifndef SOCSCHED_ADAPTER_H
#define SOCSCHED_ADAPTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOCSCHED_ADAPTER_VERSION 3

enum { SOCSCHED_FP32, SOCSCHED_FP16, SOCSCHED_INT8, SOCSCHED_UINT8, SOCSCHED_INT32, SOCSCHED_INT64, SOCSCHED_BOOL };

typedef struct socsched_port {
  const char* name;      /* of the tensor in the artefact */
  const char* layout;    /* of images: "NCHW", "NHWC", or "NCHWc" (channels in blocks); else "" */
  int32_t dtype, rank;   /* rank and shape are those in memory */
  int64_t shape[6];
  uint64_t bytes;
} socsched_port;

typedef struct socsched_artefact {
  const char *file, *vendor_library;
  const socsched_port *inputs, *outputs;
  size_t input_count, output_count;
  const char* const* options; /* name, value, name, value, ..., NULL */
} socsched_artefact;

/* Where a tensor lies: an input in one place, an output in one or in both. */
typedef struct socsched_memory {
  void* host;      /* NULL: not there */
  uint64_t device; /* on the first GPU; 0: not there */
} socsched_memory;

typedef struct socsched_adapter {
  int32_t version;

  /* Return an artefact ready to run, NULL with an error if that is not possible.  Called in the thread that runs it. */
  void* (*load)(const socsched_artefact* artefact, char* error, size_t error_bytes);

  /* Run it and return when its outputs are complete: 0, or else an error. */
  int (*run)(void* loaded, const socsched_memory* inputs, const socsched_memory* outputs, char* error, size_t error_bytes);

  /* Return memory of the first GPU, 0 if there is none left.  NULL: tensors lie in host memory only. */
  uint64_t (*share)(void* loaded, uint64_t bytes);

  /* Return host memory in which the artefact takes this input (or gives this output) as it lies, without a copy, NULL if
   * there is none for it; whoever has it may hand it to any stage of the process, for as long as that runs.  NULL: no
   * memory is better than any other. */
  void* (*place)(void* loaded, int32_t is_output, size_t number, uint64_t bytes);
} socsched_adapter;

const socsched_adapter* socsched_adapter_of_board(void);

#ifdef __cplusplus
}
#endif

#endif
