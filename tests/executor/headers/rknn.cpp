// Compiles only where the executor's declarations of librknnrt equal those of rknn_api.h.
#include "rknn_adapter.cpp"
#include "rknn_api.h"
#include "same.hpp"

namespace socsched {
namespace {

static_assert(sizeof(Context) == sizeof(rknn_context) && sizeof(Count) == sizeof(rknn_input_output_num));
static_assert(sizeof(Attributes) == sizeof(rknn_tensor_attr) && sizeof(Input) == sizeof(rknn_input));
static_assert(sizeof(Output) == sizeof(rknn_output) && sizeof(Shared) == sizeof(rknn_tensor_mem));
SAME(Shared, memory, rknn_tensor_mem, virt_addr);
SAME(Shared, file, rknn_tensor_mem, fd);
SAME(Shared, offset, rknn_tensor_mem, offset);
SAME(Shared, bytes, rknn_tensor_mem, size);
SAME(Attributes, format, rknn_tensor_attr, fmt);
SAME(Attributes, zero_point, rknn_tensor_attr, zp);
SAME(Attributes, scale, rknn_tensor_attr, scale);
SAME(Attributes, width_stride, rknn_tensor_attr, w_stride);
SAME(Count, outputs, rknn_input_output_num, n_output);
SAME(Attributes, index, rknn_tensor_attr, index);
SAME(Attributes, name, rknn_tensor_attr, name);
SAME(Attributes, elements, rknn_tensor_attr, n_elems);
SAME(Attributes, type, rknn_tensor_attr, type);
SAME(Input, memory, rknn_input, buf);
SAME(Input, bytes, rknn_input, size);
SAME(Input, pass_through, rknn_input, pass_through);
SAME(Input, type, rknn_input, type);
SAME(Input, format, rknn_input, fmt);
SAME(Output, as_float, rknn_output, want_float);
SAME(Output, preallocated, rknn_output, is_prealloc);
SAME(Output, index, rknn_output, index);
SAME(Output, memory, rknn_output, buf);
SAME(Output, bytes, rknn_output, size);
static_assert(IN_OUT_NUM == RKNN_QUERY_IN_OUT_NUM && INPUT_ATTR == RKNN_QUERY_INPUT_ATTR);
static_assert(OUTPUT_ATTR == RKNN_QUERY_OUTPUT_ATTR && CORE_AUTO == RKNN_NPU_CORE_AUTO);
static_assert(RKNN_NPU_CORE_0 == 1 && RKNN_NPU_CORE_1 == 2 && RKNN_NPU_CORE_2 == 4);  // 1 << core
static_assert(NCHW == RKNN_TENSOR_NCHW && NHWC == RKNN_TENSOR_NHWC && UNDEFINED == RKNN_TENSOR_UNDEFINED);
static_assert(TYPES[SOCSCHED_FP32] == RKNN_TENSOR_FLOAT32 && TYPES[SOCSCHED_FP16] == RKNN_TENSOR_FLOAT16);
static_assert(TYPES[SOCSCHED_INT8] == RKNN_TENSOR_INT8 && TYPES[SOCSCHED_UINT8] == RKNN_TENSOR_UINT8);
static_assert(TYPES[SOCSCHED_INT32] == RKNN_TENSOR_INT32 && TYPES[SOCSCHED_INT64] == RKNN_TENSOR_INT64);
EQUAL(Rknn::init_, &rknn_init);
EQUAL(Rknn::query_, &rknn_query);
EQUAL(Rknn::set_inputs_, &rknn_inputs_set);
EQUAL(Rknn::run_, &rknn_run);
EQUAL(Rknn::get_outputs_, &rknn_outputs_get);
EQUAL(Rknn::release_outputs_, &rknn_outputs_release);
EQUAL(Rknn::destroy_, &rknn_destroy);
EQUAL(Rknn::create_, &rknn_create_mem);
EQUAL(Rknn::import_, &rknn_create_mem_from_fd);
EQUAL(Rknn::set_memory_, &rknn_set_io_mem);
EQUAL(Rknn::destroy_memory_, &rknn_destroy_mem);

}  // namespace
}  // namespace socsched
