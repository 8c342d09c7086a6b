// Compiles only where the executor's declarations of the CUDA driver API equal those of CUDA's header.
#include <cuda.h>

#include "cuda_shares.hpp"
#include "same.hpp"

namespace {

using socsched::cuda::Driver;

#define FITS(name, ...) EQUAL(Driver::name, &::name);
SOCSCHED_CUDA(FITS)

#if CUDA_VERSION >= 12050
EQUAL(socsched::cuda::ShareDriver::cuDeviceGetDevResource, &::cuDeviceGetDevResource);
EQUAL(socsched::cuda::ShareDriver::cuDevSmResourceSplitByCount, &::cuDevSmResourceSplitByCount);
EQUAL(socsched::cuda::ShareDriver::cuDevResourceGenerateDesc, &::cuDevResourceGenerateDesc);
EQUAL(socsched::cuda::ShareDriver::cuGreenCtxCreate, &::cuGreenCtxCreate);
EQUAL(socsched::cuda::ShareDriver::cuCtxFromGreenCtx, &::cuCtxFromGreenCtx);
EQUAL(socsched::cuda::ShareDriver::cuGreenCtxStreamCreate, &::cuGreenCtxStreamCreate);
static_assert(sizeof(socsched::cuda::Resource) == sizeof(CUdevResource) && offsetof(socsched::cuda::Resource, sms) == offsetof(CUdevResource, sm));
static_assert(socsched::cuda::SM == CU_DEV_RESOURCE_TYPE_SM && socsched::cuda::DEFAULT_STREAM == CU_GREEN_CTX_DEFAULT_STREAM);
#endif

static_assert(socsched::cuda::MAJOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(socsched::cuda::MINOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(socsched::cuda::INTEGRATED == CU_DEVICE_ATTRIBUTE_INTEGRATED && socsched::cuda::MAPPED == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(socsched::cuda::DYNAMIC_SHARED == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(socsched::cuda::NON_BLOCKING == CU_STREAM_NON_BLOCKING);
static_assert(socsched::cuda::THREAD_LOCAL == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(socsched::cuda::NOT_READY == CUDA_ERROR_NOT_READY && socsched::cuda::DISABLE_TIMING == CU_EVENT_DISABLE_TIMING);
static_assert(socsched::cuda::EXTERNAL == CU_EVENT_RECORD_EXTERNAL);

}  // namespace
