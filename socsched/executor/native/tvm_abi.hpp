// The part of TVM's C ABI that running compiled stages needs, as in tvm/ffi/c_api.h of tvm-ffi 0.1 and dlpack.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace socsched::tvm {

enum TypeIndex : int32_t { NONE = 0, INT = 1, RAW_TEXT = 8, ERROR = 67, TENSOR = 70, ARRAY = 71 };

constexpr int32_t CPU = 1;

struct Object {
  uint64_t references;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void*, int);
};

struct Any {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t integer;
    const char* text;
    Object* object;
  };
};

struct Text {
  const char* data;
  size_t size;
};

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
  int64_t* strides;
  uint64_t offset;
};

struct ManagedArray {
  Array array;
  void* context;
  void (*deleter)(ManagedArray*);
};

struct Sequence {  // what follows the header of an ARRAY
  Any* items;
  int64_t size, capacity;
  void (*deleter)(void*);
};

struct ErrorCell {  // what follows the header of an ERROR
  Text kind, message;
};

template <class T>
T* content(Object* object) {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(object) + sizeof(Object));
}

}  // namespace socsched::tvm
