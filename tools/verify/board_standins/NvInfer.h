// The part of TensorRT's C++ API that the adapter uses (NvInferRuntime.h); an engine is the text of a model, see model.hpp.
#pragma once

#include <map>

#include "model.hpp"

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

class IExecutionContext {
 public:
  explicit IExecutionContext(standin::Model& model) : model(model) {}
  bool setTensorAddress(char const* name, void* data) { return places[name] = data, data != nullptr; }

  bool enqueueV3(cudaStream_t) {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const auto& port : model.inputs) from.push_back(places.at(port.name));
    for (const auto& port : model.outputs) to.push_back(places.at(port.name));
    model.run(from.data(), to.data());
    return true;
  }

  standin::Model& model;
  std::map<std::string, void*> places;
};

class ICudaEngine {
 public:
  int32_t getNbIOTensors() const noexcept { return static_cast<int32_t>(model->inputs.size() + model->outputs.size()); }
  IExecutionContext* createExecutionContext() { return new IExecutionContext(*model); }

  const standin::Port* find(const std::string& name, TensorIOMode& mode) const {
    for (const auto* side : {&model->inputs, &model->outputs})
      for (const auto& port : *side)
        if (port.name == name) return mode = side == &model->inputs ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT, &port;
    mode = TensorIOMode::kNONE;
    return nullptr;
  }

  TensorIOMode getTensorIOMode(char const* name) const noexcept {
    TensorIOMode mode;
    find(name, mode);
    return mode;
  }

  DataType getTensorDataType(char const* name) const noexcept {
    TensorIOMode mode;
    const standin::Port& port = *find(name, mode);
    return port.scale > 0 ? DataType::kINT8 : port.own.dtype == socsched::Dtype::fp16 ? DataType::kHALF : port.own.dtype == socsched::Dtype::int32 ? DataType::kINT32 : DataType::kFLOAT;
  }

  std::unique_ptr<standin::Model> model;
};

class IRuntime {
 public:
  explicit IRuntime(ILogger& logger) : logger(logger) {}
  void setDLACore(int32_t) noexcept {}

  ICudaEngine* deserializeCudaEngine(void const* blob, std::size_t size) noexcept {
    try {
      std::istringstream text(std::string(static_cast<const char*>(blob), size));
      auto engine = std::make_unique<ICudaEngine>();
      engine->model = std::make_unique<standin::Model>(text);
      return engine.release();
    } catch (const std::exception& error) {
      logger.log(ILogger::Severity::kERROR, error.what());
      return nullptr;
    }
  }

  ILogger& logger;
};

inline IRuntime* createInferRuntime(ILogger& logger) noexcept { return new IRuntime(logger); }

}  // namespace nvinfer1
