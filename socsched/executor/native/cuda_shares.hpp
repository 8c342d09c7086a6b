// A share of a GPU's SMs by green contexts, through the driver alone: from CUDA 12.4 on, without MIG or MPS.
#pragma once

#include <cstddef>
#include <string>

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

// A stream of a priority on a share.  Where that is impossible: nullptr, and why.  Streams on equal shares share a context.
Stream* stream_on(const Device& device, const Share& share, int priority, std::string& why);

}  // namespace socsched::cuda
