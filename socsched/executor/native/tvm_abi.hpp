// The part of TVM's C ABI that calling compiled kernels needs, as in tvm/ffi/c_api.h of tvm-ffi 0.1 and dlpack.h.
#pragma once

#include <cstdint>

namespace socsched::tvm {

enum TypeIndex : int32_t { NONE = 0, ARRAY_POINTER = 7 };

constexpr int32_t CPU = 1;

struct DataType {
  uint8_t code, bits;  // codes: 0 int, 1 uint, 2 float, 6 bool
  uint16_t lanes;
};

struct Array {
  void* data;
  int32_t device_type, device_id;
  int32_t rank;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // null: without gaps
  uint64_t offset;
};

struct Any {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t integer;
    Array* array;
  };
};

using Kernel = int (*)(void* self, const Any* arguments, int32_t count, Any* result);

}  // namespace socsched::tvm
