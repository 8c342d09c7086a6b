// Stages on a mobile GPU: the kernels of a launch list through OpenCL 1.2, whose library is loaded at run time.
//
// Each stage has an in-order queue and its own memory on the device; tensors are copied to it and back.  Places in memory are
// sub-buffers: a launch list aligns them to 128 bytes or more, as Mali and Adreno demand.
#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>

#include "data_stage.hpp"
#include "failure.hpp"
#include "launch_list.hpp"

namespace socsched {

namespace {

using Handle = void*;  // of any object of OpenCL

constexpr unsigned DEVICE_NAME = 0x102B, BUILD_LOG = 0x1183, REGION = 0x1220;
constexpr uint64_t ANY_DEVICE = 0xFFFFFFFF, READ_WRITE = 1;

// The functions that launch lists need.
#define SOCSCHED_OPENCL(F) \
  F(int, clGetPlatformIDs, unsigned, Handle*, unsigned*) \
  F(int, clGetDeviceIDs, Handle, uint64_t, unsigned, Handle*, unsigned*) \
  F(int, clGetDeviceInfo, Handle, unsigned, size_t, void*, size_t*) \
  F(Handle, clCreateContext, const void*, unsigned, const Handle*, const void*, void*, int*) \
  F(Handle, clCreateCommandQueue, Handle, Handle, uint64_t, int*) \
  F(Handle, clCreateProgramWithSource, Handle, unsigned, const char**, const size_t*, int*) \
  F(int, clBuildProgram, Handle, unsigned, const Handle*, const char*, const void*, void*) \
  F(int, clGetProgramBuildInfo, Handle, Handle, unsigned, size_t, void*, size_t*) \
  F(Handle, clCreateKernel, Handle, const char*, int*) \
  F(Handle, clCreateBuffer, Handle, uint64_t, size_t, void*, int*) \
  F(Handle, clCreateSubBuffer, Handle, uint64_t, unsigned, const void*, int*) \
  F(int, clSetKernelArg, Handle, unsigned, size_t, const void*) \
  F(int, clEnqueueWriteBuffer, Handle, Handle, unsigned, size_t, size_t, const void*, unsigned, const void*, void*) \
  F(int, clEnqueueReadBuffer, Handle, Handle, unsigned, size_t, size_t, void*, unsigned, const void*, void*) \
  F(int, clEnqueueFillBuffer, Handle, Handle, const void*, size_t, size_t, size_t, unsigned, const void*, void*) \
  F(int, clEnqueueNDRangeKernel, Handle, Handle, unsigned, const size_t*, const size_t*, const size_t*, unsigned, const void*, void*) \
  F(int, clFinish, Handle)

// They, and the first device of the machine, which all stages share.
struct OpenCl {
#define DECLARE(result, name, ...) result (*name)(__VA_ARGS__);
  SOCSCHED_OPENCL(DECLARE)
#undef DECLARE
  Handle device = nullptr, context = nullptr;
  std::string name;

  static const OpenCl& open() {
    static const OpenCl only;
    return only;
  }

  void check(int status, const std::string& what) const {
    if (status) throw Failure(MACHINE, name + ": " + what + " failed with OpenCL error " + std::to_string(status), "check the device's driver");
  }

  // The kernels of a source; Failure with the compiler's words.
  Handle build(const std::string& path) const {
    const std::vector<char> text = read_code(path);
    const char* const source = text.data();
    int status = 0;
    const Handle program = clCreateProgramWithSource(context, 1, const_cast<const char**>(&source), nullptr, &status);
    check(status, "clCreateProgramWithSource");
    if (clBuildProgram(program, 1, &device, "", nullptr, nullptr) == 0) return program;
    char log[2000] = "";
    size_t size = 0;
    clGetProgramBuildInfo(program, device, BUILD_LOG, sizeof log - 1, log, &size);
    throw Failure(MACHINE, path + ": " + name + " refuses the kernels: " + log, "update the device's driver");
  }

 private:
  OpenCl() {
    void* library = nullptr;
    for (const char* candidate : {"libOpenCL.so.1", "libOpenCL.so", "libmali.so"})
      if (!library) library = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw Failure(MACHINE, "libOpenCL.so.1 cannot be loaded", "install the GPU's driver with OpenCL");
    const auto find = [&](const char* symbol, auto& function) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
      if (!function) throw Failure(MACHINE, std::string("OpenCL's library lacks ") + symbol, "install a driver with OpenCL 1.2");
    };
#define FIND(result, name, ...) find(#name, name);
    SOCSCHED_OPENCL(FIND)
#undef FIND
    unsigned count = 0;
    Handle platforms[16] = {};
    if (clGetPlatformIDs(16, platforms, &count) == 0)
      for (unsigned i = 0; i < std::min(count, 16u) && !device; i++)
        if (clGetDeviceIDs(platforms[i], ANY_DEVICE, 1, &device, nullptr)) device = nullptr;
    if (!device) throw Failure(MACHINE, "OpenCL has no device", "install the GPU's driver with OpenCL");
    char text[200] = "";
    clGetDeviceInfo(device, DEVICE_NAME, sizeof text - 1, text, nullptr);
    name = text;
    int status = 0;
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status);
    check(status, "clCreateContext");
  }
};

class OpenClStage : public DataStage {
 public:
  using DataStage::DataStage;

  void prepare() override {
    cl_ = &OpenCl::open();
    list_ = std::make_unique<LaunchList>(settings().programs.at(0));
    if (list_->inputs.size() != settings().inputs.size() || list_->outputs.size() != settings().outputs.size())
      throw Failure(USAGE, place_.task.name + ": its launch list has other inputs or outputs than the settings", "write the settings again");
    int status = 0;
    queue_ = cl_->clCreateCommandQueue(cl_->context, cl_->device, 0, &status);
    cl_->check(status, "clCreateCommandQueue");
    const uint64_t sizes[] = {list_->memory, list_->constants, list_->results};
    for (size_t space = 0; space < 3; space++) {
      sizes_[space] = sizes[space] + MARGIN;
      spaces_[space] = cl_->clCreateBuffer(cl_->context, READ_WRITE, sizes_[space], nullptr, &status);
      cl_->check(status, "allocating memory");
    }
    const std::vector<char> weights = read_code(list_->weights);
    if (weights.size() - 1 < list_->constants) throw Failure(USAGE, list_->weights + ": is shorter than its launch list says", "compile the stage again");
    if (list_->constants)
      cl_->check(cl_->clEnqueueWriteBuffer(queue_, spaces_[Place::constants], 1, 0, list_->constants, weights.data(), 0, nullptr, nullptr), "copying the weights");
    std::vector<Handle> programs;
    for (const std::string& path : list_->code) programs.push_back(cl_->build(path));
    for (const LaunchList::Launch& launch : list_->launches) kernels_.push_back(kernel_of(launch, programs[launch.code]));
    counts_.resize(list_->inputs.size());
  }

  Progress launch(const Job& job) override {
    int64_t rows = -1;
    for (size_t i = 0; i < settings().inputs.size(); i++) {
      const Tensor* const tensor = input(job, i);
      if (!tensor) return Progress::failed;
      const LaunchList::Input& to = list_->inputs[i];
      const uint64_t bytes = tensor->type.bytes();
      if (to.row_bytes ? bytes > to.bytes || tensor->type.shape[0] < 0 : bytes != to.bytes) return fail("data from " + settings().inputs[i].from + " have another size than it takes");
      if (bytes && !holds(cl_->clEnqueueWriteBuffer(queue_, spaces_[to.place.space], 0, to.place.offset, bytes, tensor->data, 0, nullptr, nullptr), "copying an input"))
        return Progress::failed;
      if (!to.row_bytes) continue;
      if (rows < 0) rows = tensor->type.shape[0];
      if (to.filled && bytes < to.bytes &&
          !holds(cl_->clEnqueueFillBuffer(queue_, spaces_[to.place.space], &to.fill, 1, to.place.offset + bytes, to.bytes - bytes, 0, nullptr, nullptr), "filling an input"))
        return Progress::failed;
      counts_[i] = static_cast<int32_t>(tensor->type.shape[0]);
      if (to.counts && !holds(cl_->clEnqueueWriteBuffer(queue_, spaces_[to.count.space], 0, to.count.offset, sizeof(int32_t), &counts_[i], 0, nullptr, nullptr), "copying a number of rows"))
        return Progress::failed;
    }
    for (size_t i = 0; i < kernels_.size(); i++) {
      const LaunchList::Launch& launch = list_->launches[i];
      size_t total[3], local[3];
      for (size_t axis = 0; axis < 3; axis++) total[axis] = size_t{launch.grid[axis]} * launch.block[axis], local[axis] = launch.block[axis];
      if (!holds(cl_->clEnqueueNDRangeKernel(queue_, kernels_[i], 3, nullptr, total, local, 0, nullptr, nullptr), launch.kernel.c_str())) return Progress::failed;
    }
    for (size_t port = 0; port < list_->outputs.size(); port++) {
      const LaunchList::Output& from = list_->outputs[port];
      Tensor& to = job.output->ports[port];
      to.data = place_.slots.room(*job.output, port, std::max<uint64_t>(from.bytes, 1));
      if (from.bytes && !holds(cl_->clEnqueueReadBuffer(queue_, spaces_[Place::results], 0, from.offset, from.bytes, to.data, 0, nullptr, nullptr), "copying an output"))
        return Progress::failed;
    }
    if (!holds(cl_->clFinish(queue_), "running the kernels")) return Progress::failed;
    set_rows(settings(), *job.output, rows);
    return Progress::done;
  }

 private:
  static constexpr uint64_t MARGIN = 256;  // so that a place at the end of a piece of memory has a size

  const StageSettings& settings() const { return place_.settings; }

  bool holds(int status, const char* what) {
    if (status) fail(cl_->name + ": " + what + " failed with OpenCL error " + std::to_string(status));
    return !status;
  }

  // A kernel with its arguments, which are the same for every frame.
  Handle kernel_of(const LaunchList::Launch& launch, Handle program) {
    int status = 0;
    const Handle kernel = cl_->clCreateKernel(program, launch.kernel.c_str(), &status);
    cl_->check(status, "finding " + launch.kernel);
    for (size_t i = 0; i < launch.arguments.size(); i++) {
      const LaunchList::Argument& argument = launch.arguments[i];
      const Handle memory = argument.kind == LaunchList::Argument::place ? part(argument.where) : nullptr;
      cl_->check(memory ? cl_->clSetKernelArg(kernel, static_cast<unsigned>(i), sizeof memory, &memory)
                        : cl_->clSetKernelArg(kernel, static_cast<unsigned>(i), argument.bytes, &argument.bits),
                 "an argument of " + launch.kernel);
    }
    return kernel;
  }

  Handle part(const Place& place) {
    Handle& made = parts_[{place.space, place.offset}];
    if (made) return made;
    const size_t region[] = {place.offset, sizes_[place.space] - place.offset};
    int status = 0;
    made = cl_->clCreateSubBuffer(spaces_[place.space], 0, REGION, region, &status);
    cl_->check(status, "placing a tensor at " + std::to_string(place.offset));
    return made;
  }

  const OpenCl* cl_ = nullptr;
  std::unique_ptr<LaunchList> list_;
  Handle queue_ = nullptr;
  Handle spaces_[3] = {};
  uint64_t sizes_[3] = {};
  std::map<std::pair<int, uint64_t>, Handle> parts_;
  std::vector<Handle> kernels_;  // by launch
  std::vector<int32_t> counts_;  // by input
};

}  // namespace

std::unique_ptr<Stage> make_opencl_stage(const StagePlace& place) { return std::make_unique<OpenClStage>(place); }

}  // namespace socsched
