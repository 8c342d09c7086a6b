// A share of a GPU's SMs by green contexts, through the driver alone: from CUDA 12.4 on, without MIG or MPS.
#pragma once

#include <algorithm>
#include <cstddef>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "cuda_driver.hpp"

namespace socsched::cuda {

struct Resource {  // CUdevResource of ABI version 1
  unsigned type;
  unsigned char padding[92];
  unsigned sms, least, alignment;
  unsigned char rest[36];
};

struct Description;

struct GreenContext;

// The driver's functions for green contexts; where it is too old, they are not there.
struct ShareDriver {
  int (*cuDeviceGetDevResource)(int, Resource*, int) = nullptr;
  int (*cuDevSmResourceSplitByCount)(Resource*, unsigned*, const Resource*, Resource*, unsigned, unsigned) = nullptr;
  int (*cuDevResourceGenerateDesc)(Description**, Resource*, unsigned) = nullptr;
  int (*cuGreenCtxCreate)(GreenContext**, Description*, int, unsigned) = nullptr;
  int (*cuCtxFromGreenCtx)(Context**, GreenContext*) = nullptr;
  int (*cuGreenCtxStreamCreate)(Stream**, GreenContext*, unsigned, int) = nullptr;  // from 12.5 on
};

constexpr int SM = 1;                   // CU_DEV_RESOURCE_TYPE_SM
constexpr unsigned DEFAULT_STREAM = 1;  // CU_GREEN_CTX_DEFAULT_STREAM, which is required

// The groups of SMs from `first` on, of `of` equal groups in all; 0: the whole GPU.
struct Share {
  size_t first = 0, count = 0, of = 0;
  bool whole() const { return of == 0 || count == of; }
};

namespace {

constexpr const char* TOO_OLD = "the driver has no green contexts (CUDA 12.4 or later, on Jetson JetPack 6.1)";

// A GPU's SMs in groups, and the contexts made of them.
class Partition {
 public:
  Stream* stream(const Device& device, const Share& share, int priority, std::string& why) {
    if (!find()) return why = TOO_OLD, nullptr;
    GreenContext* const context = context_of(device, share, why);
    if (!context) return nullptr;
    Stream* made = nullptr;
    int status = 0;
    if (driver_.cuGreenCtxStreamCreate) {
      status = driver_.cuGreenCtxStreamCreate(&made, context, NON_BLOCKING, priority);
    } else {  // 12.4: the stream is of the context that is current
      Context* current = nullptr;
      status = driver_.cuCtxFromGreenCtx(&current, context);
      if (!status) status = device.driver().cuCtxSetCurrent(current);
      if (!status) status = device.driver().cuStreamCreateWithPriority(&made, NON_BLOCKING, priority);
      device.enter();
    }
    if (status) return why = device.error(status, "making a stream on a share"), nullptr;
    return made;
  }

 private:
  bool find() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // which is loaded
    if (!library) return false;
    const auto look = [&](const char* name, auto& function) { function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name)); };
    look("cuDeviceGetDevResource", driver_.cuDeviceGetDevResource);
    look("cuDevSmResourceSplitByCount", driver_.cuDevSmResourceSplitByCount);
    look("cuDevResourceGenerateDesc", driver_.cuDevResourceGenerateDesc);
    look("cuGreenCtxCreate", driver_.cuGreenCtxCreate);
    look("cuCtxFromGreenCtx", driver_.cuCtxFromGreenCtx);
    look("cuGreenCtxStreamCreate", driver_.cuGreenCtxStreamCreate);
    return driver_.cuDeviceGetDevResource && driver_.cuDevSmResourceSplitByCount && driver_.cuDevResourceGenerateDesc &&
           driver_.cuGreenCtxCreate && (driver_.cuGreenCtxStreamCreate || driver_.cuCtxFromGreenCtx);
  }

  // The groups of a GPU that is divided into `of`, made once; empty with a reason.
  const std::vector<Resource>& groups(const Device& device, size_t of, std::string& why) {
    std::vector<Resource>& made = groups_[of];
    if (!made.empty()) return made;
    Resource whole{}, rest{};
    if (const int status = driver_.cuDeviceGetDevResource(device.number(), &whole, SM)) return why = device.error(status, "asking for the SMs"), made;
    const unsigned step = std::max({whole.alignment, whole.least, 1u});
    const unsigned each = std::max(static_cast<unsigned>(whole.sms / of) / step * step, step);
    unsigned count = static_cast<unsigned>(of);
    std::vector<Resource> found(of);
    if (const int status = driver_.cuDevSmResourceSplitByCount(found.data(), &count, &whole, &rest, 0, each)) return why = device.error(status, "dividing the SMs"), made;
    if (count < of) {
      why = "the GPU divides into " + std::to_string(count) + " groups of " + std::to_string(each) + " SMs, the plan has " + std::to_string(of);
      return made;
    }
    return made = found;
  }

  GreenContext* context_of(const Device& device, const Share& share, std::string& why) {
    GreenContext*& made = contexts_[{share.first, share.count, share.of}];
    if (made) return made;
    const std::vector<Resource>& all = groups(device, share.of, why);
    if (all.empty()) return nullptr;
    if (share.first + share.count > all.size()) return why = "the share is outside the GPU", nullptr;
    std::vector<Resource> own(all.begin() + static_cast<long>(share.first), all.begin() + static_cast<long>(share.first + share.count));
    Description* description = nullptr;
    int status = driver_.cuDevResourceGenerateDesc(&description, own.data(), static_cast<unsigned>(own.size()));
    if (!status) status = driver_.cuGreenCtxCreate(&made, description, device.number(), DEFAULT_STREAM);
    if (status) return why = device.error(status, "making a context of a share"), made = nullptr;
    return made;
  }

  ShareDriver driver_;
  std::map<size_t, std::vector<Resource>> groups_;
  std::map<std::tuple<size_t, size_t, size_t>, GreenContext*> contexts_;
};

}  // namespace

// A stream of a priority on a share.  Where that is impossible: nullptr, and why.  Streams on equal shares share a context.
inline Stream* stream_on(const Device& device, const Share& share, int priority, std::string& why) {
  static std::mutex guard;
  static std::map<int, Partition> partitions;  // by the number of a GPU
  const std::lock_guard<std::mutex> lock(guard);
  return partitions[device.number()].stream(device, share, priority, why);
}

}  // namespace socsched::cuda
