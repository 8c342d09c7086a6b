// The part of TensorRT's C++ API that the adapter uses, with a stand-in behind it: names, enumerations and signatures as in
// NvInferRuntime.h of TensorRT 10 (Apache 2.0).  An engine is a text of lines "input NAME TYPE BYTES" and "output NAME TYPE
// BYTES" with TYPE a DataType; outputs are the first bytes of its first input, or what is computed of a "stage NAME 0 0".
#pragma once

#include <map>

#include "../computed.hpp"

typedef struct CUstream_st* cudaStream_t;

namespace nvinfer1 {

enum class DataType : int32_t { kFLOAT = 0, kHALF = 1, kINT8 = 2, kINT32 = 3, kBOOL = 4, kUINT8 = 5 };
enum class TensorIOMode : int32_t { kNONE = 0, kINPUT = 1, kOUTPUT = 2 };

class ILogger {
 public:
  enum class Severity : int32_t { kINTERNAL_ERROR = 0, kERROR = 1, kWARNING = 2, kINFO = 3, kVERBOSE = 4 };
  virtual void log(Severity severity, const char* msg) noexcept = 0;
  virtual ~ILogger() = default;
};

struct StandInTensor {
  std::string name;
  TensorIOMode mode;
  DataType type;
  size_t bytes;
};

class IExecutionContext {
 public:
  IExecutionContext(const std::vector<StandInTensor>& tensors, const std::string& stage) : tensors(tensors), stage(stage) {}

  bool setTensorAddress(char const* name, void* data) {
    places[name] = data;
    return data != nullptr;
  }

  bool enqueueV3(cudaStream_t stream) {
    std::vector<standin::Bytes> sides[2];
    for (const StandInTensor& tensor : tensors) {
      if (!stream || !places.count(tensor.name)) return false;
      sides[tensor.mode == TensorIOMode::kOUTPUT].push_back({places[tensor.name], tensor.bytes});
    }
    if (!stage.empty()) return standin::compute(stage, sides[0], sides[1]);
    for (const standin::Bytes& output : sides[1]) std::memcpy(output.memory, sides[0].at(0).memory, output.count);
    return true;
  }

  std::vector<StandInTensor> tensors;
  std::string stage;
  std::map<std::string, void*> places;
};

class ICudaEngine {
 public:
  int32_t getNbIOTensors() const noexcept { return static_cast<int32_t>(tensors.size()); }
  IExecutionContext* createExecutionContext() { return new IExecutionContext(tensors, stage); }

  TensorIOMode getTensorIOMode(char const* name) const noexcept {
    const StandInTensor* const found = find(name);
    return found ? found->mode : TensorIOMode::kNONE;
  }

  DataType getTensorDataType(char const* name) const noexcept { return find(name)->type; }

  const StandInTensor* find(const std::string& name) const {
    for (const StandInTensor& tensor : tensors)
      if (tensor.name == name) return &tensor;
    return nullptr;
  }

  std::vector<StandInTensor> tensors;
  std::string stage;
};

class IRuntime {
 public:
  explicit IRuntime(ILogger& logger) : logger(logger) {}
  void setDLACore(int32_t) noexcept {}

  ICudaEngine* deserializeCudaEngine(void const* blob, std::size_t size) noexcept {
    std::istringstream text = standin::model_text(blob, size);
    ICudaEngine* const engine = new ICudaEngine;
    std::string side, name;
    int32_t type;
    size_t bytes;
    while (text >> side >> name >> type >> bytes)
      if (side == "stage") engine->stage = name;
      else engine->tensors.push_back({name, side == "input" ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT, static_cast<DataType>(type), bytes});
    if (!engine->tensors.empty()) return engine;
    logger.log(ILogger::Severity::kERROR, "magic tag does not match");
    return nullptr;
  }

  ILogger& logger;
};

inline IRuntime* createInferRuntime(ILogger& logger) noexcept { return new IRuntime(logger); }

}  // namespace nvinfer1
