// TensorRT engines as an adapter, compiled on the board, where NvInfer.h of its release is (8.5 or later):
//   g++ -std=c++17 -O2 -shared -fPIC -I../native tensorrt_adapter.cpp ../native/cuda_driver.cpp -lnvinfer -ldl
// API: TensorRT developer guide, "Performing Inference" (C++): setTensorAddress and enqueueV3.
#include <NvInfer.h>

#include <cstring>
#include <map>
#include <memory>

#include "adapters.hpp"
#include "gpu_ports.hpp"

namespace socsched {

namespace {

class Log : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* text) noexcept override {
    if (severity <= Severity::kERROR) last = text;
  }

  std::string last;
};

// nvinfer1::DataType by SOCSCHED_FP32...; unsigned bytes are those of 8-bit images.
bool same_type(int32_t dtype, nvinfer1::DataType found) {
  using Type = nvinfer1::DataType;
  switch (dtype) {
    case SOCSCHED_FP32: return found == Type::kFLOAT;
    case SOCSCHED_FP16: return found == Type::kHALF;
    case SOCSCHED_INT8: return found == Type::kINT8;
    case SOCSCHED_UINT8: return found == Type::kUINT8;
    case SOCSCHED_INT32: return found == Type::kINT32;
    case SOCSCHED_BOOL: return found == Type::kBOOL;
    default: return false;
  }
}

class TensorRt {
 public:
  explicit TensorRt(const socsched_artefact& artefact) : device_(cuda::Device::open()), stream_(device_.stream(0)) {
    runtime_.reset(nvinfer1::createInferRuntime(log_));
    if (!runtime_) throw std::runtime_error("TensorRT does not start: " + log_.last);
    for (const char* const* option = artefact.options; *option; option += 2)
      if (std::strcmp(option[0], "core") == 0) runtime_->setDLACore(std::atoi(option[1]));
    const std::vector<char> engine = read_artefact(artefact.file);
    engine_.reset(runtime_->deserializeCudaEngine(engine.data(), engine.size()));
    if (!engine_) throw std::runtime_error("not an engine of this TensorRT and this device: " + log_.last);
    context_.reset(engine_->createExecutionContext());
    if (!context_) throw std::runtime_error("no memory for the engine: " + log_.last);
    if (engine_->getNbIOTensors() != static_cast<int32_t>(artefact.input_count + artefact.output_count))
      throw std::runtime_error("has other inputs or outputs than it was built with");
    for (size_t i = 0; i < artefact.input_count; i++) add(artefact.inputs[i], nvinfer1::TensorIOMode::kINPUT, inputs_, input_names_);
    for (size_t i = 0; i < artefact.output_count; i++) add(artefact.outputs[i], nvinfer1::TensorIOMode::kOUTPUT, outputs_, output_names_);
  }

  void run(const socsched_memory* inputs, const socsched_memory* outputs) {
    for (size_t i = 0; i < input_names_.size(); i++) bind(input_names_[i], inputs_.in(i, inputs[i]));
    for (size_t i = 0; i < output_names_.size(); i++) bind(output_names_[i], outputs_.out(i, outputs[i]));
    if (!context_->enqueueV3(reinterpret_cast<cudaStream_t>(stream_))) throw std::runtime_error("TensorRT: " + log_.last);
    for (size_t i = 0; i < output_names_.size(); i++) outputs_.fetch(i, outputs[i]);
    device_.check(device_.driver().cuStreamSynchronize(stream_), "running the engine");
  }

  uint64_t share(uint64_t bytes) { return share_on(device_, bytes); }
  void* place(bool, size_t, uint64_t bytes) { return place_on(device_, bytes); }

 private:
  void add(const socsched_port& wanted, nvinfer1::TensorIOMode mode, GpuPorts& ports, std::vector<std::string>& names) {
    const std::string name = wanted.name;
    if (engine_->getTensorIOMode(wanted.name) != mode) throw std::runtime_error(name + ": no such input or output of the engine");
    if (!same_type(wanted.dtype, engine_->getTensorDataType(wanted.name))) throw std::runtime_error(name + ": the engine has another data type");
    ports.add(wanted.bytes);
    names.push_back(name);
  }

  void bind(const std::string& name, cuda::Address memory) {
    cuda::Address& bound = bound_[name];
    if (bound != memory && !context_->setTensorAddress(name.c_str(), reinterpret_cast<void*>(memory))) throw std::runtime_error(name + ": " + log_.last);
    bound = memory;
  }

  Log log_;
  const cuda::Device& device_;
  cuda::Stream* const stream_;
  std::unique_ptr<nvinfer1::IRuntime> runtime_;
  std::unique_ptr<nvinfer1::ICudaEngine> engine_;
  std::unique_ptr<nvinfer1::IExecutionContext> context_;
  GpuPorts inputs_{device_, stream_}, outputs_{device_, stream_};
  std::vector<std::string> input_names_, output_names_;
  std::map<std::string, cuda::Address> bound_;
};

}  // namespace

}  // namespace socsched

extern "C" const socsched_adapter* socsched_adapter_of_board() { return socsched::adapter_of<socsched::TensorRt>(); }
