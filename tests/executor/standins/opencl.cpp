// A stand-in for libOpenCL.so.1: memory of the device is shared with the program at $STANDIN_SOCKET, which builds the kernels
// with an OpenCL of its own and runs them.  It notes copies and mappings in $STANDIN_LOG.  With $STANDIN_COPIES the
// device has a memory of its own, with $STANDIN_MOVES mapped memory is another one each time.
#include <set>

#include "computed.hpp"

namespace {

struct Memory { char* place; size_t bytes; bool mapped; };
struct Program { std::string source, number, log; };
struct Argument { uint64_t is_memory, value, bytes; };
struct Kernel { Program* program; std::string name; std::vector<Argument> arguments; };

int object;

std::mutex guard;
std::set<const void*> memories;

Memory* made(char* place, size_t bytes) {
  const std::lock_guard<std::mutex> lock(guard);
  Memory* const memory = new Memory{place, bytes, false};
  return memories.insert(memory), memory;
}

bool is_memory(const void* value) {
  const std::lock_guard<std::mutex> lock(guard);
  return memories.count(value);
}

Memory& at(void* memory) { return *static_cast<Memory*>(memory); }

// The answer of the program outside: a status, and what else is asked for.
int ask(const std::string& line, std::vector<standin::Bytes> sent, std::vector<standin::Bytes> wanted = {}) {
  int status = -5;
  wanted.insert(wanted.begin(), {&status, sizeof status});
  return standin::compute(line, sent, wanted) ? status : -5;
}

}  // namespace

extern "C" {

int clGetPlatformIDs(unsigned, void** platforms, unsigned* count) {
  *platforms = &object, *count = 1;
  return 0;
}

int clGetDeviceIDs(void*, uint64_t, unsigned, void** device, unsigned*) {
  *device = &object;
  return 0;
}

int clGetDeviceInfo(void*, unsigned what, size_t bytes, void* to, size_t*) {
  if (what == 0x1035) *static_cast<unsigned*>(to) = !std::getenv("STANDIN_COPIES");
  else std::strncpy(static_cast<char*>(to), "a stand-in", bytes);
  return 0;
}

void* clCreateContext(const void*, unsigned, void* const*, const void*, void*, int* status) { return *status = 0, &object; }

void* clCreateCommandQueue(void*, void*, uint64_t, int* status) { return *status = 0, &object; }

void* clCreateProgramWithSource(void*, unsigned, const char** source, const size_t*, int* status) { return *status = 0, new Program{*source, "", ""}; }

int clBuildProgram(void* handle, unsigned, void* const*, const char*, const void*, void*) {
  Program& program = *static_cast<Program*>(handle);
  int number = 0;
  const int status = ask("build " + std::to_string(program.source.size()), {{&program.source[0], program.source.size()}}, {{&number, sizeof number}});
  program.number = std::to_string(number);
  return status;
}

int clGetProgramBuildInfo(void*, void*, unsigned, size_t, void*, size_t*) { return 0; }

void* clCreateKernel(void* program, const char* name, int* status) { return *status = 0, new Kernel{static_cast<Program*>(program), name, {}}; }

void* clCreateBuffer(void*, uint64_t flags, size_t bytes, void*, int* status) {
  char* const place = static_cast<char*>(standin::room((bytes + 255) / 256 * 256));
  *status = place ? 0 : -4;
  if (place && flags == 1) std::memset(place, 0x5a, bytes);
  return place ? made(place, bytes) : nullptr;
}

void* clCreateSubBuffer(void* whole, uint64_t, unsigned, const void* region, int* status) {
  const size_t* const sizes = static_cast<const size_t*>(region);
  *status = sizes[0] % 128 || sizes[0] + sizes[1] > at(whole).bytes ? -13 : 0;
  return made(at(whole).place + sizes[0], sizes[1]);
}

int clSetKernelArg(void* handle, unsigned number, size_t bytes, const void* value) {
  std::vector<Argument>& arguments = static_cast<Kernel*>(handle)->arguments;
  if (arguments.size() <= number) arguments.resize(number + 1);
  void* memory = nullptr;
  std::memcpy(&memory, value, bytes < sizeof memory ? bytes : sizeof memory);
  const bool given = bytes == sizeof memory && is_memory(memory);
  arguments[number] = given ? Argument{1, reinterpret_cast<uint64_t>(at(memory).place), at(memory).bytes} : Argument{0, reinterpret_cast<uint64_t>(memory), bytes};
  return 0;
}

int clEnqueueWriteBuffer(void*, void* memory, unsigned, size_t offset, size_t bytes, const void* from, unsigned, const void*, void*) {
  standin::note("copy in %zu", bytes);
  std::memcpy(at(memory).place + offset, from, bytes);
  return 0;
}

int clEnqueueReadBuffer(void*, void* memory, unsigned, size_t offset, size_t bytes, void* to, unsigned, const void*, void*) {
  standin::note("copy out %zu", bytes);
  std::memcpy(to, at(memory).place + offset, bytes);
  return 0;
}

int clEnqueueFillBuffer(void*, void* memory, const void* pattern, size_t, size_t offset, size_t bytes, unsigned, const void*, void*) {
  if (at(memory).mapped || offset + bytes > at(memory).bytes) return -59;
  std::memset(at(memory).place + offset, *static_cast<const char*>(pattern), bytes);
  return 0;
}

void* clEnqueueMapBuffer(void*, void* memory, unsigned, uint64_t access, size_t offset, size_t bytes, unsigned, const void*, void*, int* status) {
  Memory& mapped = at(memory);
  standin::note("map %c %zu", access == 2 ? 'w' : 'r', bytes);
  *status = mapped.mapped || offset + bytes > mapped.bytes ? -59 : 0;
  mapped.mapped = true;
  if (std::getenv("STANDIN_MOVES")) mapped.place = static_cast<char*>(standin::room(mapped.bytes + 256));
  return mapped.place + offset;
}

int clEnqueueUnmapMemObject(void*, void* memory, void* place, unsigned, const void*, void*) {
  const bool right = at(memory).mapped && place == at(memory).place;
  at(memory).mapped = false;
  return right ? 0 : -59;
}

int clEnqueueNDRangeKernel(void*, void* handle, unsigned, const size_t*, const size_t* total, const size_t* local, unsigned, const void*, void*) {
  Kernel& kernel = *static_cast<Kernel*>(handle);
  size_t sizes[] = {total[0], total[1], total[2], local[0], local[1], local[2]};
  const std::string line = "launch " + kernel.program->number + " " + kernel.name + " " + std::to_string(kernel.arguments.size());
  return ask(line, {{sizes, sizeof sizes}, {kernel.arguments.data(), kernel.arguments.size() * sizeof(Argument)}});
}

int clFinish(void*) { return 0; }

}  // extern "C"
