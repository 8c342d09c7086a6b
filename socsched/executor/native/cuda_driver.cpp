#include "cuda_driver.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>

#include "failure.hpp"

namespace socsched::cuda {

namespace {

constexpr const char* LIBRARY = "libcuda.so.1";
constexpr const char* DRIVER = "install the GPU's driver; on a Jetson it is part of JetPack";

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) throw Failure(MACHINE, std::string(LIBRARY) + " lacks " + name, "install a driver of CUDA 11.4 or later");
}

}  // namespace

Device::Device(int number) : under_way_("gpu" + std::to_string(number)), number_(number) {
  void* const library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Failure(MACHINE, std::string(LIBRARY) + " cannot be loaded: " + dlerror(), DRIVER);
#define SOCSCHED_FIND(name, ...) find(library, #name, driver_.name);
  SOCSCHED_CUDA(SOCSCHED_FIND)
#undef SOCSCHED_FIND
  int device = 0, major = 0, minor = 0;
  check(driver_.cuInit(0), "starting the driver");
  check(driver_.cuDriverGetVersion(&version_), "asking for the driver's version");
  check(driver_.cuDeviceGet(&device, number), number ? "looking for another GPU" : "looking for a GPU");
  check(driver_.cuDeviceGetAttribute(&major, MAJOR, device), "asking for the GPU's architecture");
  check(driver_.cuDeviceGetAttribute(&minor, MINOR, device), "asking for the GPU's architecture");
  check(driver_.cuDeviceGetAttribute(&integrated_, INTEGRATED, device), "asking for the GPU's memory");
  capability_ = 10 * major + minor;
  check(driver_.cuDevicePrimaryCtxRetain(&context_, device), "making a context");
}

const Device& Device::open(int number) {
  static std::mutex guard;
  static std::map<int, std::unique_ptr<const Device>> devices;
  const std::lock_guard<std::mutex> lock(guard);
  std::unique_ptr<const Device>& device = devices[number];
  if (!device) device.reset(new Device(number));
  device->enter();
  return *device;
}

void Device::enter() const { check(driver_.cuCtxSetCurrent(context_), "entering the context"); }

std::string Device::error(int status, const char* what) const {
  const char* text = nullptr;
  driver_.cuGetErrorString(status, &text);
  return std::string("CUDA: ") + what + " failed: " + (text ? text : "unknown error") + " (" + std::to_string(status) + ")";
}

void Device::check(int status, const char* what) const {
  if (status) throw Failure(MACHINE, error(status, what), "see nvidia-smi, or tegrastats on a Jetson, and dmesg");
}

bool Device::runs(const std::string& architecture) const {
  if (architecture.compare(0, 3, "sm_") != 0) return false;
  char* end = nullptr;
  const long number = std::strtol(architecture.c_str() + 3, &end, 10);
  if (*end == 'a') return number == capability_;
  return !*end && number / 10 == capability_ / 10 && number <= capability_;
}

int Device::priority(int criticality) const {
  int low = 0, high = 0;
  check(driver_.cuCtxGetStreamPriorityRange(&low, &high), "asking for stream priorities");
  return low + (high - low) * criticality / 2;
}

Stream* Device::stream(int criticality) const {
  Stream* made = nullptr;
  check(driver_.cuStreamCreateWithPriority(&made, NON_BLOCKING, priority(criticality)), "making a stream");
  return made;
}

}  // namespace socsched::cuda
