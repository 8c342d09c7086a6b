/* Kernels for the fuzzer's launch lists: they read and write every byte of their tensors, so that a sanitizer sees one
   that does not lie in its memory. */
#include <stdint.h>

typedef struct { void *data; int32_t device_type, device_id, rank; uint8_t code, bits; uint16_t lanes; int64_t *shape, *strides; uint64_t offset; } Array;
typedef struct { int32_t type_index; uint32_t padding; Array *array; } Any;

int __tvm_ffi_touch(void *self, const Any *arguments, int32_t count, Any *result) {
    (void)self, (void)result;
    for (int32_t i = 0; i < count; i++) {
        const Array *array = arguments[i].array;
        uint64_t bytes = array->bits / 8;
        for (int32_t axis = 0; axis < array->rank; axis++) bytes *= (uint64_t)array->shape[axis];
        volatile uint8_t *data = array->data;
        for (uint64_t at = 0; at < bytes; at += at + 4096 < bytes ? 509 : 1) data[at] = data[at];
    }
    return 0;
}

int __tvm_ffi_fail(void *self, const Any *arguments, int32_t count, Any *result) {
    (void)self, (void)arguments, (void)count, (void)result;
    return 1;
}
