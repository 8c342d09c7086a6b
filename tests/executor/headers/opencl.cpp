// Compiles only where the executor's declarations of OpenCL 1.2 equal those of CL/cl.h.
#define CL_TARGET_OPENCL_VERSION 120
#include "CL/cl.h"
#include "opencl_stage.cpp"
#include "same.hpp"

namespace socsched {
namespace {

#define FITS(result, name, ...) EQUAL(OpenCl::name, &::name);
SOCSCHED_OPENCL(FITS)
static_assert(DEVICE_NAME == CL_DEVICE_NAME && BUILD_LOG == CL_PROGRAM_BUILD_LOG && REGION == CL_BUFFER_CREATE_TYPE_REGION);
static_assert(ANY_DEVICE == CL_DEVICE_TYPE_ALL && READ_WRITE == CL_MEM_READ_WRITE && HOST_POINTER == CL_MEM_ALLOC_HOST_PTR);
static_assert(ONE_MEMORY == CL_DEVICE_HOST_UNIFIED_MEMORY && READS == CL_MAP_READ && WRITES == CL_MAP_WRITE);

}  // namespace
}  // namespace socsched
