// Compiles only where the executor's declarations of the CUDA driver API equal those of CUDA's header.
#include <cuda.h>

#include "cuda_shares.hpp"
#include "same.hpp"

namespace {

using socsched::cuda::Driver;

EQUAL(Driver::cuInit, &::cuInit);
EQUAL(Driver::cuDriverGetVersion, &::cuDriverGetVersion);
EQUAL(Driver::cuDeviceGet, &::cuDeviceGet);
EQUAL(Driver::cuDeviceGetAttribute, &::cuDeviceGetAttribute);
EQUAL(Driver::cuDevicePrimaryCtxRetain, &::cuDevicePrimaryCtxRetain);
EQUAL(Driver::cuCtxSetCurrent, &::cuCtxSetCurrent);
EQUAL(Driver::cuCtxGetStreamPriorityRange, &::cuCtxGetStreamPriorityRange);
EQUAL(Driver::cuGetErrorString, &::cuGetErrorString);
EQUAL(Driver::cuModuleLoadData, &::cuModuleLoadData);
EQUAL(Driver::cuModuleGetFunction, &::cuModuleGetFunction);
EQUAL(Driver::cuFuncSetAttribute, &::cuFuncSetAttribute);
EQUAL(Driver::cuMemAlloc_v2, &::cuMemAlloc_v2);
EQUAL(Driver::cuMemHostRegister_v2, &::cuMemHostRegister_v2);
EQUAL(Driver::cuMemHostGetDevicePointer_v2, &::cuMemHostGetDevicePointer_v2);
EQUAL(Driver::cuMemcpyHtoD_v2, &::cuMemcpyHtoD_v2);
EQUAL(Driver::cuMemcpyHtoDAsync_v2, &::cuMemcpyHtoDAsync_v2);
EQUAL(Driver::cuMemcpyDtoHAsync_v2, &::cuMemcpyDtoHAsync_v2);
EQUAL(Driver::cuMemcpyDtoDAsync_v2, &::cuMemcpyDtoDAsync_v2);
EQUAL(Driver::cuMemsetD8Async, &::cuMemsetD8Async);
EQUAL(Driver::cuStreamCreateWithPriority, &::cuStreamCreateWithPriority);
EQUAL(Driver::cuStreamSynchronize, &::cuStreamSynchronize);
EQUAL(Driver::cuStreamQuery, &::cuStreamQuery);
EQUAL(Driver::cuMemHostUnregister, &::cuMemHostUnregister);
EQUAL(Driver::cuStreamBeginCapture_v2, &::cuStreamBeginCapture_v2);
EQUAL(Driver::cuStreamEndCapture, &::cuStreamEndCapture);
EQUAL(Driver::cuGraphInstantiateWithFlags, &::cuGraphInstantiateWithFlags);
EQUAL(Driver::cuGraphDestroy, &::cuGraphDestroy);
EQUAL(Driver::cuGraphLaunch, &::cuGraphLaunch);
EQUAL(Driver::cuEventCreate, &::cuEventCreate);
EQUAL(Driver::cuEventRecord, &::cuEventRecord);
EQUAL(Driver::cuEventRecordWithFlags, &::cuEventRecordWithFlags);
EQUAL(Driver::cuEventQuery, &::cuEventQuery);
EQUAL(Driver::cuEventElapsedTime, &::cuEventElapsedTime);
EQUAL(Driver::cuLaunchKernel, &::cuLaunchKernel);

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
static_assert(socsched::cuda::DYNAMIC_SHARED == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(socsched::cuda::NON_BLOCKING == CU_STREAM_NON_BLOCKING);
static_assert(socsched::cuda::THREAD_LOCAL == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(socsched::cuda::NOT_READY == CUDA_ERROR_NOT_READY && socsched::cuda::DISABLE_TIMING == CU_EVENT_DISABLE_TIMING);
static_assert(socsched::cuda::EXTERNAL == CU_EVENT_RECORD_EXTERNAL);

}  // namespace
