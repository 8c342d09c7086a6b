// Compiles only where the executor's declarations of cuDLA equal those of cudla.h.
#include "cudla.h"
#include "cudla_adapter.cpp"
#include "same.hpp"

namespace socsched {
namespace {

static_assert(sizeof(Descriptor) == sizeof(cudlaModuleTensorDescriptor) && sizeof(Attribute) == sizeof(cudlaModuleAttribute));
static_assert(sizeof(Task) == sizeof(cudlaTask));
SAME(Descriptor, name, cudlaModuleTensorDescriptor, name);
SAME(Descriptor, size, cudlaModuleTensorDescriptor, size);
SAME(Descriptor, stride, cudlaModuleTensorDescriptor, stride);
SAME(Task, loadable, cudlaTask, moduleHandle);
SAME(Task, outputs, cudlaTask, outputTensor);
SAME(Task, output_count, cudlaTask, numOutputTensors);
SAME(Task, input_count, cudlaTask, numInputTensors);
SAME(Task, inputs, cudlaTask, inputTensor);
SAME(Task, waits, cudlaTask, waitEvents);
SAME(Task, signals, cudlaTask, signalEvents);
static_assert(INPUT_COUNT == CUDLA_NUM_INPUT_TENSORS && OUTPUT_COUNT == CUDLA_NUM_OUTPUT_TENSORS);
static_assert(INPUTS == CUDLA_INPUT_TENSOR_DESCRIPTORS && OUTPUTS == CUDLA_OUTPUT_TENSOR_DESCRIPTORS);
static_assert(HYBRID == CUDLA_CUDA_DLA);
EQUAL(Cudla::create_, &cudlaCreateDevice);
EQUAL(Cudla::load_, &cudlaModuleLoadFromMemory);
EQUAL(Cudla::get_, &cudlaModuleGetAttributes);
EQUAL(Cudla::register_, &cudlaMemRegister);
EQUAL(Cudla::submit_, &cudlaSubmitTask);
EQUAL(Cudla::last_error_, &cudlaGetLastError);

}  // namespace
}  // namespace socsched
