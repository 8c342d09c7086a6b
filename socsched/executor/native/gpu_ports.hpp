// Tensors of an artefact that runs on the first GPU's memory: where they lie, or in memory of their own that they are copied to.
//
// A Jetson's GPU reaches the host's memory (locked and mapped): tensors that the host makes or reads lie there, and are not
// copied.  Its caches leave such memory out, so tensors that stages on the GPU hand on lie in the device's.
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "adapters.hpp"
#include "cuda_driver.hpp"
#include "tensor.hpp"

namespace socsched {

// Host memory that the GPU reaches, and its address there.
inline Memories<cuda::Address>& mapped_memory() {
  static Memories<cuda::Address>& only = *new Memories<cuda::Address>;  // never destroyed
  return only;
}

inline void* place_on(const cuda::Device& device, uint64_t bytes) {
  if (!device.one_memory()) return nullptr;
  device.enter();
  cuda::Address address = 0;
  const uint64_t whole = whole_pages(bytes);
  void* const memory = std::aligned_alloc(PAGE, whole);
  if (!memory) return nullptr;
  std::memset(memory, 0, whole);
  if (device.driver().cuMemHostRegister_v2(memory, whole, cuda::MAPPED) || device.driver().cuMemHostGetDevicePointer_v2(&address, memory, 0)) {
    std::free(memory);
    return nullptr;
  }
  mapped_memory().add(memory, address);
  return memory;
}

class GpuPorts {
 public:
  GpuPorts(const cuda::Device& device, cuda::Stream* stream) : device_(device), stream_(stream) {}

  void add(uint64_t bytes) { ports_.push_back({0, bytes}); }
  uint64_t bytes(size_t number) const { return ports_[number].bytes; }

  // Where an input lies on the GPU, once what is in the stream has run.
  cuda::Address in(size_t number, const socsched_memory& given) {
    if (given.device) return given.device;
    if (const cuda::Address* const mapped = mapped_memory().find(given.host)) return *mapped;
    device_.check(device_.driver().cuMemcpyHtoDAsync_v2(on_gpu(number, given), given.host, bytes(number), stream_), "copying an input");
    return ports_[number].memory;
  }

  // The same in memory of its own, for libraries that read whole allocations that the stream wrote.
  cuda::Address own(size_t number, const socsched_memory& given) {
    if (!given.device) return in(number, given);
    const cuda::Address place = on_gpu(number, {});
    device_.check(device_.driver().cuMemcpyDtoDAsync_v2(place, given.device, bytes(number), stream_), "copying an input");
    return place;
  }

  cuda::Address out(size_t number, const socsched_memory& given) {
    const cuda::Address* const mapped = given.device ? nullptr : mapped_memory().find(given.host);
    return mapped ? *mapped : on_gpu(number, given);
  }

  // Queue the copy of an output to the host, if it is wanted there.
  void fetch(size_t number, const socsched_memory& given) {
    if (given.host && (given.device || !mapped_memory().find(given.host))) device_.check(device_.driver().cuMemcpyDtoHAsync_v2(given.host, on_gpu(number, given), bytes(number), stream_), "copying an output");
  }

 private:
  struct Port {
    cuda::Address memory;
    uint64_t bytes;
  };

  cuda::Address on_gpu(size_t number, const socsched_memory& given) {
    Port& own = ports_[number];
    if (!given.device && !own.memory) device_.check(device_.driver().cuMemAlloc_v2(&own.memory, own.bytes), "allocating memory");
    return given.device ? given.device : own.memory;
  }

  const cuda::Device& device_;
  cuda::Stream* stream_;
  std::vector<Port> ports_;
};

inline uint64_t share_on(const cuda::Device& device, uint64_t bytes) {
  cuda::Address made = 0;
  return device.driver().cuMemAlloc_v2(&made, bytes) ? 0 : made;
}

}  // namespace socsched
