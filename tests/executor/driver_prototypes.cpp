// Compiles only where the executor's declarations of the CUDA driver API equal those of CUDA's header.
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "cuda_shares.hpp"

namespace {

// Handles and enumerations count as what they are in the binary interface: addresses and 32-bit numbers.
template <class T>
struct Passed {
  using type = std::conditional_t<std::is_pointer_v<T>, void*, std::conditional_t<std::is_enum_v<T>, int, T>>;
};

template <class F>
struct Shape;
template <class R, class... A>
struct Shape<R (*)(A...)> {
  using type = typename Passed<R>::type (*)(typename Passed<A>::type...);
};

template <class Mine, class Theirs>
constexpr bool equal = std::is_same_v<typename Shape<Mine>::type, typename Shape<Theirs>::type>;

using socsched::cuda::Driver;

#define EQUAL(name) static_assert(equal<decltype(Driver::name), decltype(&::name)>, #name)

EQUAL(cuInit);
EQUAL(cuDriverGetVersion);
EQUAL(cuDeviceGet);
EQUAL(cuDeviceGetAttribute);
EQUAL(cuDevicePrimaryCtxRetain);
EQUAL(cuCtxSetCurrent);
EQUAL(cuCtxGetStreamPriorityRange);
EQUAL(cuGetErrorString);
EQUAL(cuModuleLoadData);
EQUAL(cuModuleGetFunction);
EQUAL(cuFuncSetAttribute);
EQUAL(cuMemAlloc_v2);
EQUAL(cuMemHostRegister_v2);
EQUAL(cuMemcpyHtoD_v2);
EQUAL(cuMemcpyHtoDAsync_v2);
EQUAL(cuMemcpyDtoHAsync_v2);
EQUAL(cuMemcpyDtoDAsync_v2);
EQUAL(cuMemsetD8Async);
EQUAL(cuStreamCreateWithPriority);
EQUAL(cuStreamSynchronize);
EQUAL(cuStreamQuery);
EQUAL(cuMemHostUnregister);
EQUAL(cuStreamBeginCapture_v2);
EQUAL(cuStreamEndCapture);
EQUAL(cuGraphInstantiateWithFlags);
EQUAL(cuGraphDestroy);
EQUAL(cuGraphLaunch);
EQUAL(cuEventCreate);
EQUAL(cuEventRecord);
EQUAL(cuEventQuery);
EQUAL(cuLaunchKernel);

#if CUDA_VERSION >= 12050
#define SHARES(name) static_assert(equal<decltype(socsched::cuda::ShareDriver::name), decltype(&::name)>, #name)
SHARES(cuDeviceGetDevResource);
SHARES(cuDevSmResourceSplitByCount);
SHARES(cuDevResourceGenerateDesc);
SHARES(cuGreenCtxCreate);
SHARES(cuCtxFromGreenCtx);
SHARES(cuGreenCtxStreamCreate);
static_assert(sizeof(socsched::cuda::Resource) == sizeof(CUdevResource) && offsetof(socsched::cuda::Resource, sms) == offsetof(CUdevResource, sm));
static_assert(socsched::cuda::SM == CU_DEV_RESOURCE_TYPE_SM && socsched::cuda::DEFAULT_STREAM == CU_GREEN_CTX_DEFAULT_STREAM);
#endif

static_assert(socsched::cuda::MAJOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(socsched::cuda::MINOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(socsched::cuda::DYNAMIC_SHARED == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(socsched::cuda::NON_BLOCKING == CU_STREAM_NON_BLOCKING);
static_assert(socsched::cuda::THREAD_LOCAL == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(socsched::cuda::NOT_READY == CUDA_ERROR_NOT_READY && socsched::cuda::DISABLE_TIMING == CU_EVENT_DISABLE_TIMING);

}  // namespace
