// Converts a tensor from standard input: tensor_check DTYPE LAYOUT DTYPE LAYOUT SIZE...
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tensor.hpp"

using namespace socsched;

static void set(TensorType& type, const char* dtype, const char* layout) {
  const auto& names = dtype_names();
  type.dtype = static_cast<Dtype>(std::find(names.begin(), names.end(), dtype) - names.begin());
  if (!parse_layout(layout, type.layout)) std::exit(2);
}

int main(int count, char** values) {
  Tensor from, to;
  set(from.type, values[1], values[2]);
  set(to.type, values[3], values[4]);
  for (int i = 5; i < count; i++) from.type.shape[static_cast<size_t>(from.type.rank++)] = std::atoll(values[i]);
  TensorType wanted = from.type;
  wanted.dtype = to.type.dtype;
  wanted.layout = to.type.layout;
  const Memory input = allocate(from.type.bytes()), output = allocate(wanted.bytes());
  from.data = input.get();
  to.data = output.get();
  if (std::fread(from.data, 1, from.type.bytes(), stdin) != from.type.bytes() || !convert(from, to)) return 3;
  return std::fwrite(to.data, 1, to.type.bytes(), stdout) == wanted.bytes() ? 0 : 4;
}
