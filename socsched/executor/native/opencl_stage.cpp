// Stages on a mobile GPU: the kernels of a launch list through OpenCL 1.2, whose library is loaded at run time.
//
// Each stage has an in-order queue and its own memory on the device.  Where host and device have one memory, its outputs lie
// in buffers that the host sees (CL_MEM_ALLOC_HOST_PTR), and so do inputs that other stages put into such a buffer: they
// are mapped while the host may use them, and kernels take them where they lie.  Else tensors are copied.  Places in memory
// are sub-buffers: a launch list aligns them to 128 bytes or more, as Mali and Adreno demand.
#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>

#include "adapters.hpp"
#include "stage.hpp"
#include "failure.hpp"
#include "launch_list.hpp"

namespace socsched {

namespace {

using Handle = void*;  // of any object of OpenCL

constexpr unsigned DEVICE_NAME = 0x102B, ONE_MEMORY = 0x1035, BUILD_LOG = 0x1183, REGION = 0x1220;
constexpr uint64_t ANY_DEVICE = 0xFFFFFFFF, READ_WRITE = 1, HOST_POINTER = 16, READS = 1, WRITES = 2;

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
  F(void*, clEnqueueMapBuffer, Handle, Handle, unsigned, uint64_t, size_t, size_t, unsigned, const void*, void*, int*) \
  F(int, clEnqueueUnmapMemObject, Handle, Handle, void*, unsigned, const void*, void*) \
  F(int, clEnqueueNDRangeKernel, Handle, Handle, unsigned, const size_t*, const size_t*, const size_t*, unsigned, const void*, void*) \
  F(int, clFinish, Handle)

// They, and the first device of the machine, which all stages share.
struct OpenCl {
#define DECLARE(result, name, ...) result (*name)(__VA_ARGS__);
  SOCSCHED_OPENCL(DECLARE)
#undef DECLARE
  Handle device = nullptr, context = nullptr;
  std::string name;
  bool one_memory = false;  // of host and device

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
    unsigned unified = 0;
    one_memory = clGetDeviceInfo(device, ONE_MEMORY, sizeof unified, &unified, nullptr) == 0 && unified;
    int status = 0;
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status);
    check(status, "clCreateContext");
  }
};

// Memory of the device that the host sees, mapped unless kernels of its stage run.
struct Buffer {
  Handle memory = nullptr;
  void* host = nullptr;
  uint64_t bytes = 0, access = 0;  // access: how the host has it
  bool mapped = false;
};

struct Spot {
  Buffer* buffer = nullptr;
  uint64_t offset = 0;
};

// Where tensors lie in buffers, of all stages of the process, by their addresses.
Memories<Spot>& spots() {
  static Memories<Spot>& only = *new Memories<Spot>;  // never destroyed
  return only;
}

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
    where_.resize(list_->inputs.size());
    for (size_t slot = 0; slot < place_.slots.count(); slot++)
      if (Buffer* const made = list_->results ? buffer(sizes_[Place::results], READS) : nullptr) {
        results_[place_.slots.slot(slot)] = made;
        for (size_t port = 0; port < list_->outputs.size(); port++) {
          const LaunchList::Output& from = list_->outputs[port];
          char* const place = static_cast<char*>(made->host) + from.offset;
          if (from.bytes && place_.slots.lend(slot, port, place, from.bytes)) spots().add(place, {made, from.offset});
        }
      }
  }

  Offer offer(size_t number) override {
    const uint64_t bytes = list_->inputs[number].bytes;
    Buffer* const made = buffer(bytes + MARGIN, WRITES);
    if (!made) return {};
    spots().add(made->host, {made, 0});
    return {made->host, bytes};
  }

  Progress launch(const Job& job) override {
    int64_t rows = -1;
    taken_.clear();
    const auto own = results_.find(job.output);
    Buffer* const result = own == results_.end() ? nullptr : own->second;
    if (result && !take(*result)) return Progress::failed;
    for (size_t i = 0; i < settings().inputs.size(); i++) {
      const Tensor* const tensor = input(job, i);
      if (!tensor) return Progress::failed;
      const LaunchList::Input& to = list_->inputs[i];
      const uint64_t bytes = tensor->type.bytes();
      if (to.row_bytes ? bytes > to.bytes || tensor->type.shape[0] < 0 : bytes != to.bytes) return fail("data from " + settings().inputs[i].from + " have another size than it takes");
      const bool fills = to.row_bytes && to.filled && bytes < to.bytes;
      const Spot* const spot = spots().find(tensor->data);
      where_[i] = spot && (spot->buffer->access == WRITES || !fills) && spot->offset + to.bytes <= spot->buffer->bytes ? *spot : Spot{};
      if (where_[i].buffer && where_[i].buffer->access == WRITES && !take(*where_[i].buffer)) return Progress::failed;
      if (bytes && !where_[i].buffer &&
          !holds(cl_->clEnqueueWriteBuffer(queue_, spaces_[to.place.space], 0, to.place.offset, bytes, tensor->data, 0, nullptr, nullptr), "copying an input"))
        return Progress::failed;
      if (!to.row_bytes) continue;
      if (rows < 0) rows = tensor->type.shape[0];
      const Handle filled = where_[i].buffer ? where_[i].buffer->memory : spaces_[to.place.space];
      const uint64_t first = where_[i].buffer ? where_[i].offset : to.place.offset;
      if (fills && !holds(cl_->clEnqueueFillBuffer(queue_, filled, &to.fill, 1, first + bytes, to.bytes - bytes, 0, nullptr, nullptr), "filling an input")) return Progress::failed;
      counts_[i] = static_cast<int32_t>(tensor->type.shape[0]);
      if (to.counts && !holds(cl_->clEnqueueWriteBuffer(queue_, spaces_[to.count.space], 0, to.count.offset, sizeof(int32_t), &counts_[i], 0, nullptr, nullptr), "copying a number of rows"))
        return Progress::failed;
    }
    for (Moving& one : moving_) {
      const Handle memory = part(one.place, result);
      if (memory != one.set && !holds(cl_->clSetKernelArg(kernels_[one.launch], one.argument, sizeof memory, &memory), "an argument")) return Progress::failed;
      one.set = memory;
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
      if (from.bytes && !result && !holds(cl_->clEnqueueReadBuffer(queue_, spaces_[Place::results], 0, from.offset, from.bytes, to.data, 0, nullptr, nullptr), "copying an output"))
        return Progress::failed;
    }
    for (Buffer* const buffer : taken_)
      if (!map(*buffer)) return fail(cl_->name + ": a buffer cannot be mapped where it was");
    if (!holds(cl_->clFinish(queue_), "running the kernels")) return Progress::failed;
    set_rows(settings(), *job.output, rows);
    return Progress::done;
  }

 private:
  static constexpr size_t ALIGNMENT = 64;  // of what slots lend
  static constexpr uint64_t MARGIN = 256;  // so that a place at the end of a piece of memory has a size

  const StageSettings& settings() const { return place_.settings; }

  bool holds(int status, const char* what) {
    if (status) fail(cl_->name + ": " + what + " failed with OpenCL error " + std::to_string(status));
    return !status;
  }

  // A new buffer that the host may read or write; null if copies are needed: host and device have two memories, or the
  // driver maps it elsewhere each time.
  Buffer* buffer(uint64_t bytes, uint64_t access) {
    int status = 0;
    if (!cl_->one_memory) return nullptr;
    auto made = std::make_unique<Buffer>();
    made->memory = cl_->clCreateBuffer(cl_->context, READ_WRITE | HOST_POINTER, bytes, nullptr, &status);
    if (status) return nullptr;
    made->bytes = bytes, made->access = access;
    const bool stays = map(*made) && take(*made) && map(*made) && reinterpret_cast<size_t>(made->host) % ALIGNMENT == 0;
    taken_.clear();
    return stays ? buffers_.emplace_back(std::move(made)).get() : nullptr;
  }

  // Let the host have a buffer, where it had it before.
  bool map(Buffer& buffer) {
    int status = 0;
    void* const host = cl_->clEnqueueMapBuffer(queue_, buffer.memory, 1, buffer.access, 0, buffer.bytes, 0, nullptr, nullptr, &status);
    if (status || !host || (buffer.host && host != buffer.host)) return false;
    buffer.host = host;
    return buffer.mapped = true;
  }

  // Take a buffer from the host until the kernels have run.
  bool take(Buffer& buffer) {
    if (buffer.mapped && !holds(cl_->clEnqueueUnmapMemObject(queue_, buffer.memory, buffer.host, 0, nullptr, nullptr), "taking a buffer")) return false;
    buffer.mapped = false;
    taken_.push_back(&buffer);
    return true;
  }

  // A kernel with its arguments; those that are inputs or results may move from frame to frame.
  Handle kernel_of(const LaunchList::Launch& launch, Handle program) {
    int status = 0;
    const Handle kernel = cl_->clCreateKernel(program, launch.kernel.c_str(), &status);
    cl_->check(status, "finding " + launch.kernel);
    for (size_t i = 0; i < launch.arguments.size(); i++) {
      const LaunchList::Argument& argument = launch.arguments[i];
      const Handle memory = argument.kind == LaunchList::Argument::place ? part(argument.where, nullptr) : nullptr;
      if (memory && (argument.where.space == Place::results || input_at(argument.where) < list_->inputs.size()))
        moving_.push_back({kernels_.size(), static_cast<unsigned>(i), argument.where, memory});
      cl_->check(memory ? cl_->clSetKernelArg(kernel, static_cast<unsigned>(i), sizeof memory, &memory)
                        : cl_->clSetKernelArg(kernel, static_cast<unsigned>(i), argument.bytes, &argument.bits),
                 "an argument of " + launch.kernel);
    }
    return kernel;
  }

  // The input that a place is in, their number if it is in none.
  size_t input_at(const Place& place) const {
    size_t i = 0;
    while (i < list_->inputs.size() && (place.space != list_->inputs[i].place.space || place.offset < list_->inputs[i].place.offset ||
                                        place.offset - list_->inputs[i].place.offset >= list_->inputs[i].bytes))
      i++;
    return i;
  }

  // What kernels call a place of this frame: in the memory of the stage, unless its input or the results lie elsewhere.
  Handle part(const Place& place, Buffer* result) {
    const size_t input = input_at(place);
    if (place.space == Place::results && result) return part(parts_[result->memory], result->memory, place.offset, result->bytes);
    if (const Spot spot = input < where_.size() ? where_[input] : Spot{}; spot.buffer)
      return part(parts_[spot.buffer->memory], spot.buffer->memory, spot.offset + place.offset - list_->inputs[input].place.offset, spot.buffer->bytes);
    return part(parts_[spaces_[place.space]], spaces_[place.space], place.offset, sizes_[place.space]);
  }

  Handle part(std::map<uint64_t, Handle>& parts, Handle whole, uint64_t offset, uint64_t bytes) {
    Handle& made = parts[offset];
    if (made) return made;
    const size_t region[] = {offset, bytes - offset};
    int status = 0;
    made = cl_->clCreateSubBuffer(whole, 0, REGION, region, &status);
    cl_->check(status, "placing a tensor at " + std::to_string(offset));
    return made;
  }

  // An argument that is an input or a result, and what it is now.
  struct Moving {
    size_t launch;
    unsigned argument;
    Place place;
    Handle set;
  };

  const OpenCl* cl_ = nullptr;
  std::unique_ptr<LaunchList> list_;
  Handle queue_ = nullptr;
  Handle spaces_[3] = {};
  uint64_t sizes_[3] = {};
  std::map<Handle, std::map<uint64_t, Handle>> parts_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::map<const Data*, Buffer*> results_;  // by slot
  std::vector<Moving> moving_;
  std::vector<Spot> where_;                 // by input: of this frame, none if it was copied
  std::vector<Buffer*> taken_;              // from the host, until this frame is done
  std::vector<Handle> kernels_;  // by launch
  std::vector<int32_t> counts_;  // by input
};

}  // namespace

std::unique_ptr<Stage> make_opencl_stage(const StagePlace& place) { return std::make_unique<OpenClStage>(place); }

}  // namespace socsched
