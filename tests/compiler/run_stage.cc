// Runs one exported stage library without Python: run_stage LIBRARY INPUTS OUTPUTS REPEATS
//
// INPUTS and OUTPUTS hold tensors one after the other: int32 type code, bits and number of dimensions (DLPack's
// codes: 0 signed, 1 unsigned, 2 floating point), int64 dimensions, then the elements in C order, little-endian.
// Prints the time of every run in ms, one a line.  Links against TVM's runtime only, not its compiler.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <vector>

namespace ffi = tvm::ffi;

struct Aligned {  // Kernels use aligned vector loads.
  void AllocData(DLTensor* tensor) {
    void* data = nullptr;
    size_t size = ffi::GetDataSize(*tensor);
    if (posix_memalign(&data, 64, size ? size : 64)) std::abort();
    tensor->data = data;
  }
  void FreeData(DLTensor* tensor) { free(tensor->data); }
};

static std::vector<ffi::Any> read_tensors(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<ffi::Any> tensors;
  int32_t head[3];
  while (file.read(reinterpret_cast<char*>(head), sizeof head)) {
    std::vector<int64_t> shape(head[2]);
    file.read(reinterpret_cast<char*>(shape.data()), shape.size() * sizeof(int64_t));
    DLDataType type{static_cast<uint8_t>(head[0]), static_cast<uint8_t>(head[1]), 1};
    auto tensor = ffi::Tensor::FromNDAlloc(Aligned(), ffi::Shape(shape), type, DLDevice{kDLCPU, 0});
    file.read(static_cast<char*>(tensor.data_ptr()), ffi::GetDataSize(tensor));
    if (!file) throw std::runtime_error("inputs are cut short");
    tensors.push_back(tensor);
  }
  return tensors;
}

static void write_tensors(const char* path, const ffi::Array<ffi::Tensor>& tensors) {
  std::ofstream file(path, std::ios::binary);
  for (ffi::Tensor tensor : tensors) {
    int32_t head[3] = {tensor.dtype().code, tensor.dtype().bits, static_cast<int32_t>(tensor.shape().size())};
    file.write(reinterpret_cast<char*>(head), sizeof head);
    for (int64_t size : tensor.shape()) file.write(reinterpret_cast<char*>(&size), sizeof size);
    file.write(static_cast<char*>(tensor.data_ptr()), ffi::GetDataSize(tensor));
  }
}

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: run_stage LIBRARY INPUTS OUTPUTS REPEATS\n"), 2;
  try {
    ffi::Module library = ffi::Module::LoadFromFile(argv[1]);
    ffi::Module machine = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
    machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, 2);  // 2: pooled allocator
    ffi::Function stage = machine->GetFunction("main").value();
    std::vector<ffi::Any> inputs = read_tensors(argv[2]);
    std::vector<ffi::AnyView> arguments(inputs.begin(), inputs.end());
    ffi::Any results;
    for (int i = 0; i < std::atoi(argv[4]); ++i) {
      auto start = std::chrono::steady_clock::now();
      stage.CallPacked(ffi::PackedArgs(arguments.data(), static_cast<int32_t>(arguments.size())), &results);
      auto elapsed = std::chrono::steady_clock::now() - start;
      std::printf("%.3f\n", std::chrono::duration<double, std::milli>(elapsed).count());
    }
    write_tensors(argv[3], results.cast<ffi::Array<ffi::Tensor>>());
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
  return 0;
}
