#include "tensor.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "failure.hpp"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // loops of conversions in vectors
#endif

namespace socsched {

namespace {

constexpr int64_t TILE = 16;  // pixels converted at once, where they lie apart

std::atomic<size_t> taken{0};  // bytes of all tensors

// The product of sizes and a first factor; TOO_LARGE if a size is negative or the product exceeds MOST_MEMORY.
size_t product(size_t first, const int64_t* sizes, int count) {
  if (std::find(sizes, sizes + count, 0) != sizes + count && std::none_of(sizes, sizes + count, [](int64_t size) { return size < 0; })) return 0;
  size_t total = first;
  for (int i = 0; i < count; i++)
    if (sizes[i] < 0 || __builtin_mul_overflow(total, static_cast<size_t>(sizes[i]), &total) || total > MOST_MEMORY) return TOO_LARGE;
  return total;
}

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// One of two, without a branch.
inline uint32_t either(bool first, uint32_t one, uint32_t other) {
  const uint32_t mask = 0u - static_cast<uint32_t>(first);
  return (one & mask) | (other & ~mask);
}

// IEEE 754 half precision, rounded to nearest, ties to even; without branches, so that compilers use vectors.
inline uint16_t half_of(float value) {
  const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  const uint32_t below = bits_of(float_of(rest) + 0.5f) - bits_of(0.5f);
  uint32_t half = either(rest < 0x38800000, below, (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
  half = either(rest >= 0x477ff000, 0x7c00, half);
  half = either(rest > 0x7f800000, 0x7e00 | (rest >> 13 & 0x3ff), half);
  return static_cast<uint16_t>(sign | half);
}

inline float float_of_half(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
  const uint32_t below = bits_of(static_cast<float>(static_cast<int32_t>(rest)) * 5.9604644775390625e-8f);
  const uint32_t above = (rest << 13) + either(rest < 0x7c00, 0x38000000, 0x70000000);
  return float_of(sign | either(rest < 0x400, below, above));
}

void store(uint16_t& to, float from) { to = half_of(from); }
void store(float& to, uint16_t from) { to = float_of_half(from); }
void store(float& to, uint8_t from) { to = static_cast<float>(from); }
void store(uint16_t& to, uint8_t from) { to = half_of(static_cast<float>(from)); }
template <class T>
void store(T& to, T from) {
  to = from;
}

// Where pixel (n, c, y, x) lies.
struct Strides {
  int64_t image, block, channel, row, column, size;

  explicit Strides(const TensorType& type) {
    std::array<int64_t, MOST_RANK> shape{};
    type.physical(shape);
    const Layout& layout = type.layout;
    if (layout.channels_last) {
      channel = 1, column = shape[3], row = column * shape[2], image = row * shape[1], size = 1, block = 1;
    } else {
      size = layout.block ? layout.block : 1;
      channel = 1;
      column = size;
      row = column * shape[3];
      block = row * shape[2];
      image = block * shape[1];
    }
    first = layout.border * (row + column);
  }

  int64_t at(int64_t n, int64_t c, int64_t y) const { return first + n * image + c / size * block + c % size * channel + y * row; }

  int64_t first;
};

template <class From, class To>
void lay(const Tensor& from, Tensor& to) {
  const From* const source = static_cast<const From*>(from.data);
  To* const target = static_cast<To*>(to.data);
  if (from.type.rank != 4 || from.type.layout == to.type.layout) {
    const int64_t count = static_cast<int64_t>(from.type.bytes() / sizeof(From));
    for (int64_t i = 0; i < count; i++) store(target[i], source[i]);
    return;
  }
  const Strides in(from.type), out(to.type);
  const auto& shape = from.type.shape;
  if (to.type.layout.border || (to.type.layout.block && shape[1] % to.type.layout.block)) std::memset(to.data, 0, to.type.bytes());
  const int64_t step_in = in.column, step_out = out.column;
  for (int64_t n = 0; n < shape[0]; n++)
    for (int64_t y = 0; y < shape[2]; y++)
      for (int64_t c = 0; c < shape[1]; c++) {
        const From* read = source + in.at(n, c, y);
        To* write = target + out.at(n, c, y);
        int64_t x = 0;
        for (; x + TILE <= shape[3]; x += TILE, read += TILE * step_in, write += TILE * step_out) {
          From given[TILE];
          To made[TILE];
          for (int64_t i = 0; i < TILE; i++) given[i] = read[i * step_in];
          for (int64_t i = 0; i < TILE; i++) store(made[i], given[i]);
          if (step_out == 1) {
            std::memcpy(write, made, sizeof made);
            continue;
          }
          for (int64_t i = 0; i < TILE; i++) write[i * step_out] = made[i];
        }
        for (; x < shape[3]; x++, read += step_in, write += step_out) store(*write, *read);
      }
}

}  // namespace

const std::vector<std::string>& dtype_names() {
  static const std::vector<std::string> names = {"fp32", "fp16", "int8", "uint8", "int32", "int64", "bool"};
  return names;
}

size_t size_of(Dtype dtype) {
  static const size_t sizes[] = {4, 2, 1, 1, 4, 8, 1};
  return sizes[static_cast<size_t>(dtype)];
}

bool parse_layout(const std::string& name, Layout& layout) {
  layout = {};
  size_t at = 4;
  const auto number = [&](int64_t least) {
    const size_t start = at;
    int64_t value = 0;
    while (at < name.size() && at < start + 4 && name[at] >= '0' && name[at] <= '9') value = value * 10 + (name[at++] - '0');
    return at == start || value < least ? int64_t{-1} : value;
  };
  if (name.empty()) return true;
  if (name.compare(0, 4, "NHWC") == 0) {
    layout.channels_last = true;
  } else if (name.compare(0, 4, "NCHW") != 0) {
    return false;
  } else if (at < name.size() && name[at] != '+') {
    layout.block = number(1);
    if (layout.block < 0 || at >= name.size() || name[at++] != 'c') return false;
  }
  if (at < name.size() && name[at++] == '+') layout.border = number(0);
  return at == name.size() && layout.border >= 0;
}

std::string layout_name(const Layout& layout) {
  std::string name = layout.channels_last ? "NHWC" : layout.block ? "NCHW" + std::to_string(layout.block) + "c" : "NCHW";
  return layout.border ? name + "+" + std::to_string(layout.border) : name;
}

bool TensorType::fixed() const {
  return std::all_of(shape.begin(), shape.begin() + rank, [](int64_t size) { return size >= 0; });
}

int64_t TensorType::elements() const {
  const size_t count = product(1, shape.data(), rank);
  return count == TOO_LARGE ? -1 : static_cast<int64_t>(count);
}

int TensorType::physical(std::array<int64_t, MOST_RANK>& out) const {
  out = shape;
  if (rank != 4) return rank;
  const int64_t height = shape[2] + 2 * layout.border, width = shape[3] + 2 * layout.border;
  if (layout.channels_last) {
    out = {shape[0], height, width, shape[1]};
    return 4;
  }
  if (!layout.block) {
    out = {shape[0], shape[1], height, width};
    return 4;
  }
  out = {shape[0], (shape[1] + layout.block - 1) / layout.block, height, width, layout.block};
  return 5;
}

size_t TensorType::bytes() const {
  std::array<int64_t, MOST_RANK> sizes{};
  const int count = physical(sizes);
  return fixed() ? product(size_of(dtype), sizes.data(), count) : TOO_LARGE;
}

TensorType TensorType::form(const TensorType& other) const {
  TensorType made = *this;
  made.dtype = other.dtype;
  made.layout = other.layout;
  return made;
}

bool TensorType::lies_as(const TensorType& other) const {
  return dtype == other.dtype && (rank != 4 || layout == other.layout);
}

void FreeMemory::operator()(void* memory) const {
  std::free(memory);
  taken -= bytes;
}

void require_room(size_t bytes, size_t count, const std::string& what) {
  size_t total;
  const size_t used = taken;
  if (__builtin_mul_overflow(bytes, count, &total) || total > MOST_MEMORY || used > MOST_MEMORY - total)
    throw Failure(USAGE, what + ": the tensors of a run would take more than " + std::to_string(MOST_MEMORY >> 30) + " GiB", "expected smaller outputs, or shorter queues");
}

Memory allocate(size_t bytes) {
  require_room(bytes, 1, "a tensor");
  const size_t whole = (std::max(bytes, size_t{1}) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  void* const memory = std::aligned_alloc(ALIGNMENT, whole);
  if (!memory) throw std::bad_alloc();
  taken += whole;
  std::memset(memory, 0, whole);
  return Memory(memory, FreeMemory{whole});
}

bool convert(const Tensor& from, Tensor& to) {
  to.type.rank = from.type.rank;
  to.type.shape = from.type.shape;
  const Dtype source = from.type.dtype, target = to.type.dtype;
  if (source == target) {
    switch (size_of(source)) {
      case 1: lay<uint8_t, uint8_t>(from, to); break;
      case 2: lay<uint16_t, uint16_t>(from, to); break;
      case 4: lay<uint32_t, uint32_t>(from, to); break;
      default: lay<uint64_t, uint64_t>(from, to);
    }
    return true;
  }
  if (source == Dtype::fp32 && target == Dtype::fp16) return lay<float, uint16_t>(from, to), true;
  if (source == Dtype::fp16 && target == Dtype::fp32) return lay<uint16_t, float>(from, to), true;
  if (source == Dtype::uint8 && target == Dtype::fp32) return lay<uint8_t, float>(from, to), true;
  if (source == Dtype::uint8 && target == Dtype::fp16) return lay<uint8_t, uint16_t>(from, to), true;
  return false;
}

}  // namespace socsched
