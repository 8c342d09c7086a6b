// Compiles only where the executor's declarations of ONNX Runtime equal those of onnxruntime_c_api.h.
#include "onnxruntime_c_api.h"
#include "onnxruntime_adapter.cpp"
#include "same.hpp"

namespace socsched {
namespace {

#define ORT(mine, theirs) \
  static_assert(mine.position * sizeof(void*) == offsetof(OrtApi, theirs), #theirs); \
  static_assert(equal<decltype(mine)::type, decltype(OrtApi::theirs)>, #theirs)

static_assert(offsetof(socsched::OrtApiBase, GetApi) == offsetof(::OrtApiBase, GetApi) && sizeof(socsched::OrtApiBase) == sizeof(::OrtApiBase));
ORT(GET_ERROR_MESSAGE, GetErrorMessage);
ORT(CREATE_ENV, CreateEnv);
ORT(CREATE_SESSION, CreateSession);
ORT(RUN, Run);
ORT(CREATE_SESSION_OPTIONS, CreateSessionOptions);
ORT(SET_LOG_SEVERITY, SetSessionLogSeverityLevel);
ORT(SET_INTRA_OP_THREADS, SetIntraOpNumThreads);
ORT(CREATE_TENSOR, CreateTensorWithDataAsOrtValue);
ORT(CREATE_MEMORY_INFO, CreateMemoryInfo);
ORT(CREATE_CPU_MEMORY_INFO, CreateCpuMemoryInfo);
ORT(ALLOCATE, AllocatorAlloc);
ORT(CREATE_ALLOCATOR, CreateAllocator);
ORT(RELEASE_STATUS, ReleaseStatus);
ORT(RELEASE_VALUE, ReleaseValue);
ORT(ADD_CONFIG_ENTRY, AddSessionConfigEntry);
ORT(APPEND_PROVIDER, SessionOptionsAppendExecutionProvider);
#if ORT_API_VERSION >= 22
ORT(REGISTER_PROVIDER_LIBRARY, RegisterExecutionProviderLibrary);
ORT(GET_DEVICES, GetEpDevices);
ORT(APPEND_PROVIDER_V2, SessionOptionsAppendExecutionProvider_V2);
ORT(DEVICE_PROVIDER_NAME, EpDevice_EpName);
#endif
static_assert(DEVICE_ALLOCATOR == OrtDeviceAllocator && DEFAULT_MEMORY == OrtMemTypeDefault);
static_assert(FATAL == ORT_LOGGING_LEVEL_FATAL && WARNING == ORT_LOGGING_LEVEL_WARNING);
static_assert(ELEMENT_TYPES[SOCSCHED_FP32] == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && ELEMENT_TYPES[SOCSCHED_FP16] == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16);
static_assert(ELEMENT_TYPES[SOCSCHED_INT8] == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 && ELEMENT_TYPES[SOCSCHED_UINT8] == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8);
static_assert(ELEMENT_TYPES[SOCSCHED_INT32] == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 && ELEMENT_TYPES[SOCSCHED_INT64] == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
static_assert(ELEMENT_TYPES[SOCSCHED_BOOL] == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL);

}  // namespace
}  // namespace socsched
