// Compiles only where the executor's declarations of OpenCL 1.2 equal those of CL/cl.h.
#define CL_TARGET_OPENCL_VERSION 120
#include "CL/cl.h"
#include "opencl_stage.cpp"
#include "same.hpp"

namespace socsched {
namespace {

EQUAL(OpenCl::clGetPlatformIDs, &::clGetPlatformIDs);
EQUAL(OpenCl::clGetDeviceIDs, &::clGetDeviceIDs);
EQUAL(OpenCl::clGetDeviceInfo, &::clGetDeviceInfo);
EQUAL(OpenCl::clCreateContext, &::clCreateContext);
EQUAL(OpenCl::clCreateCommandQueue, &::clCreateCommandQueue);
EQUAL(OpenCl::clCreateProgramWithSource, &::clCreateProgramWithSource);
EQUAL(OpenCl::clBuildProgram, &::clBuildProgram);
EQUAL(OpenCl::clGetProgramBuildInfo, &::clGetProgramBuildInfo);
EQUAL(OpenCl::clCreateKernel, &::clCreateKernel);
EQUAL(OpenCl::clCreateBuffer, &::clCreateBuffer);
EQUAL(OpenCl::clCreateSubBuffer, &::clCreateSubBuffer);
EQUAL(OpenCl::clSetKernelArg, &::clSetKernelArg);
EQUAL(OpenCl::clEnqueueWriteBuffer, &::clEnqueueWriteBuffer);
EQUAL(OpenCl::clEnqueueReadBuffer, &::clEnqueueReadBuffer);
EQUAL(OpenCl::clEnqueueFillBuffer, &::clEnqueueFillBuffer);
EQUAL(OpenCl::clEnqueueNDRangeKernel, &::clEnqueueNDRangeKernel);
EQUAL(OpenCl::clFinish, &::clFinish);
static_assert(DEVICE_NAME == CL_DEVICE_NAME && BUILD_LOG == CL_PROGRAM_BUILD_LOG && REGION == CL_BUFFER_CREATE_TYPE_REGION);
static_assert(ANY_DEVICE == CL_DEVICE_TYPE_ALL && READ_WRITE == CL_MEM_READ_WRITE);

}  // namespace
}  // namespace socsched
