// The part of CUDA's driver API that launch lists need, loaded at run time: no toolkit, no libcudart, any JetPack.
// Declarations follow "CUDA Driver API"; every function is there from CUDA 11.4 on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "under_way.hpp"

namespace socsched::cuda {

using Address = unsigned long long;  // on the device
struct Context;
struct Module;
struct Function;
struct Stream;
struct Event;
struct Graph;
struct Executable;

// The driver's functions, with the names of their latest binary interface.
#define SOCSCHED_CUDA(F) \
  F(cuInit, unsigned) \
  F(cuDriverGetVersion, int*) \
  F(cuDeviceGet, int*, int) \
  F(cuDeviceGetAttribute, int*, int, int) \
  F(cuDevicePrimaryCtxRetain, Context**, int) \
  F(cuCtxSetCurrent, Context*) \
  F(cuCtxGetStreamPriorityRange, int*, int*) \
  F(cuGetErrorString, int, const char**) \
  F(cuModuleLoadData, Module**, const void*) \
  F(cuModuleGetFunction, Function**, Module*, const char*) \
  F(cuFuncSetAttribute, Function*, int, int) \
  F(cuMemAlloc_v2, Address*, size_t) \
  F(cuMemHostRegister_v2, void*, size_t, unsigned) \
  F(cuMemHostUnregister, void*) \
  F(cuMemHostGetDevicePointer_v2, Address*, void*, unsigned) \
  F(cuMemcpyHtoD_v2, Address, const void*, size_t) \
  F(cuMemcpyHtoDAsync_v2, Address, const void*, size_t, Stream*) \
  F(cuMemcpyDtoHAsync_v2, void*, Address, size_t, Stream*) \
  F(cuMemcpyDtoDAsync_v2, Address, Address, size_t, Stream*) \
  F(cuMemsetD8Async, Address, unsigned char, size_t, Stream*) \
  F(cuStreamCreateWithPriority, Stream**, unsigned, int) \
  F(cuStreamSynchronize, Stream*) \
  F(cuStreamQuery, Stream*) \
  F(cuStreamWaitEvent, Stream*, Event*, unsigned) \
  F(cuStreamBeginCapture_v2, Stream*, int) \
  F(cuStreamEndCapture, Stream*, Graph**) \
  F(cuGraphInstantiateWithFlags, Executable**, Graph*, unsigned long long) \
  F(cuGraphDestroy, Graph*) \
  F(cuGraphLaunch, Executable*, Stream*) \
  F(cuEventCreate, Event**, unsigned) \
  F(cuEventRecord, Event*, Stream*) \
  F(cuEventRecordWithFlags, Event*, Stream*, unsigned) \
  F(cuEventQuery, Event*) \
  F(cuEventElapsedTime, float*, Event*, Event*) \
  F(cuLaunchKernel, Function*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream*, void**, void**)

struct Driver {
#define SOCSCHED_DECLARE(name, ...) int (*name)(__VA_ARGS__);
  SOCSCHED_CUDA(SOCSCHED_DECLARE)
#undef SOCSCHED_DECLARE
};

// Values of the API's enumerations.
constexpr int MAJOR = 75, MINOR = 76;                      // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
constexpr int INTEGRATED = 18;                             // CU_DEVICE_ATTRIBUTE_INTEGRATED
constexpr int DYNAMIC_SHARED = 8;                          // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned NON_BLOCKING = 1;                       // CU_STREAM_NON_BLOCKING
constexpr int THREAD_LOCAL = 1;                            // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr unsigned MAPPED = 2;                             // CU_MEMHOSTREGISTER_DEVICEMAP
constexpr int NOT_READY = 600;                             // CUDA_ERROR_NOT_READY
constexpr unsigned DISABLE_TIMING = 2, EXTERNAL = 1;       // CU_EVENT_DISABLE_TIMING, CU_EVENT_RECORD_EXTERNAL
constexpr unsigned SHARED_MEMORY_LIMIT = 48 << 10;         // above, a kernel has to ask

// A GPU: the driver, its primary context, and what code runs on it.
class Device {
 public:
  // A device by its number, opened on first use; Failure without a driver or that GPU.  The calling thread gets its context.
  static const Device& open(int number = 0);

  // Give the calling thread its context.
  void enter() const;

  const Driver& driver() const { return driver_; }
  int capability() const { return capability_; }           // 87 for 8.7
  int version() const { return version_; }                 // of the API: 12020 for 12.2
  bool one_memory() const { return integrated_; }          // with the host, as on a Jetson

  // Throw Failure unless `status` is 0.
  void check(int status, const char* what) const;
  std::string error(int status, const char* what) const;

  // Whether code for an architecture ("sm_87", "sm_90") can run here: the same major number, and a minor one not above.
  bool runs(const std::string& architecture) const;

  // A stream: hard stages (2) have the highest priority, soft ones (0) the lowest.
  Stream* stream(int criticality) const;
  int priority(int criticality) const;
  int number() const { return number_; }

  // Jobs begin and end here, so that bounded stages queue nothing more while a more critical job is under way, in this
  // process or another one of the user.
  void begin(int criticality) const { under_way_.begin(criticality); }
  void end(int criticality) const { under_way_.end(criticality); }
  bool yields(int criticality) const { return under_way_.above(criticality); }

 private:
  explicit Device(int number);

  mutable UnderWay under_way_;
  int number_ = 0;
  Driver driver_{};
  Context* context_ = nullptr;
  int capability_ = 0, version_ = 0, integrated_ = 0;
};

}  // namespace socsched::cuda
