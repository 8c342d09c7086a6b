// Tensors between stages: data type, memory layout and shape, and conversions, as socsched/compiler/layouts.py has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace socsched {

constexpr size_t ALIGNMENT = 64;

enum class Dtype : uint8_t { fp32, fp16, int8, uint8, int32, int64, boolean };

const std::vector<std::string>& dtype_names();
size_t size_of(Dtype dtype);

// "NCHW" or "NHWC", channels in blocks of `block` (0: plain), with a zero `border` of pixels.
struct Layout {
  int64_t block = 0, border = 0;
  bool channels_last = false;

  bool operator==(const Layout& other) const {
    return block == other.block && border == other.border && channels_last == other.channels_last;
  }
};

// Parse a name such as "NCHW16c+1" ("" means NCHW); return false for any other.
bool parse_layout(const std::string& name, Layout& layout);
std::string layout_name(const Layout& layout);

constexpr int MOST_RANK = 6;
constexpr int64_t MOST_ELEMENTS = int64_t{1} << 31;
constexpr size_t MOST_MEMORY = size_t{4} << 30;  // bytes of all tensors of a run
constexpr size_t TOO_LARGE = SIZE_MAX;

struct TensorType {
  Dtype dtype = Dtype::fp32;
  Layout layout;
  int rank = 0;
  std::array<int64_t, MOST_RANK> shape{};  // the logical one; -1: any size

  bool fixed() const;                                         // whether no size is free
  int64_t elements() const;                                   // of the logical shape; -1: a size is free, or too many
  int physical(std::array<int64_t, MOST_RANK>& shape) const;  // the shape in memory; returns its rank
  size_t bytes() const;                                       // in memory; TOO_LARGE: a size is free, or more than MOST_MEMORY
  TensorType form(const TensorType& other) const;             // this shape with the data type and layout of another
  bool lies_as(const TensorType& other) const;                // whether data type and layout agree
};

// A tensor in memory; `device` is its address on a GPU, whose number is `gpu`, where it may lie alone, as bytes if they
// have a `scale`.  `whole`: whole pages that it is a part of, if they exist during the whole run: those of frames, or of
// the most rows that it may have.
struct Tensor {
  void* data = nullptr;
  TensorType type;
  uint64_t device = 0;
  int gpu = 0;
  float scale = 0;
  void* whole = nullptr;
  size_t whole_bytes = 0;
};

struct FreeMemory {
  size_t bytes = 0;
  void operator()(void* memory) const;
};

using Memory = std::unique_ptr<void, FreeMemory>;

// Return zeroed memory that starts at a multiple of 64 bytes, as compiled kernels require; all of its pages exist.
// Failure if tensors would take more than MOST_MEMORY.
Memory allocate(size_t bytes);

constexpr size_t PAGE = 4096;  // memory is locked for a GPU in whole pages, each once, and copied if all of it is locked or nothing

inline size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

inline void* first_page(void* memory) { return reinterpret_cast<void*>(whole_pages(reinterpret_cast<size_t>(memory))); }

// Failure if `bytes` more, once for each of `count`, would be too many.
void require_room(size_t bytes, size_t count, const std::string& what);

// Write `from` with the data type and layout of `to` into the memory of `to`, which has room for it; its shape becomes
// that of `from`.  Return false if there is no conversion between these data types.
bool convert(const Tensor& from, Tensor& to);

}  // namespace socsched
