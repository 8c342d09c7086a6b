// Stages that a vendor's runtime executes: an adapter loads the artefact and runs it over tensors in host memory,
// or on the first GPU where both sides have them there.  Host memory is the adapter's where it has some that needs no copy:
// outputs lie there, those of other stages that it alone reads, and what is converted for it.
#include <algorithm>
#include <cmath>
#include <dlfcn.h>

#include "adapters.hpp"
#include "stage.hpp"
#include "failure.hpp"

namespace socsched {

namespace {

constexpr size_t ERROR_BYTES = 1000;

const socsched_adapter* find_adapter(const StageSettings& settings) {
  if (settings.adapter == "onnxruntime") return onnxruntime_adapter();
  if (settings.adapter == "rknn") return rknn_adapter();
  if (settings.adapter == "cudla") return cudla_adapter();
  if (settings.adapter != "board") throw Failure(USAGE, "no adapter is called " + settings.adapter, "write the settings again");
  void* const library = dlopen(settings.shared_object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Failure(MACHINE, settings.shared_object + ": cannot be loaded: " + dlerror(), "run build.sh of the bundle on this board");
  const auto adapter = reinterpret_cast<decltype(&socsched_adapter_of_board)>(dlsym(library, "socsched_adapter_of_board"));
  if (!adapter || adapter()->version != SOCSCHED_ADAPTER_VERSION)
    throw Failure(MACHINE, settings.shared_object + ": no adapter of version " + std::to_string(SOCSCHED_ADAPTER_VERSION), "build it again");
  return adapter();
}

// Round to nearest, ties to even, as vendors' runtimes do.
void quantise(const float* from, int8_t* to, size_t count, float scale) {
  const float steps = 1 / scale;
  for (size_t i = 0; i < count; i++) to[i] = static_cast<int8_t>(std::lrintf(std::min(std::max(from[i] * steps, -128.0f), 127.0f)));
}

class EngineStage : public DataStage {
 public:
  explicit EngineStage(const StagePlace& place) : DataStage(place) {
    for (const TensorType& type : place.settings.outputs)
      for (int axis = 0; axis < type.rank; axis++)
        if (type.shape[static_cast<size_t>(axis)] < 0) throw Failure(USAGE, place.task.name + ": its outputs vary in size", "write the settings again");
    inputs_.resize(place.settings.inputs.size());
    quantised_.resize(inputs_.size());
    outputs_.resize(place.settings.outputs.size());
  }

  void prepare() override {
    const StageSettings& settings = place_.settings;
    std::vector<socsched_port> inputs, outputs;
    for (size_t i = 0; i < inputs_.size(); i++) {
      inputs.push_back(port(settings.input_names[i], settings.inputs[i].type, settings.input_scales[i], input_bytes_));
      quantised_[i] = input_bytes_[i].get();
    }
    for (size_t i = 0; i < outputs_.size(); i++) outputs.push_back(port(settings.output_names[i], settings.outputs[i], settings.output_scales[i], output_bytes_));
    std::vector<const char*> options;
    for (const auto& [name, value] : settings.options) options.insert(options.end(), {name.c_str(), value.c_str()});
    options.push_back(nullptr);
    const socsched_artefact artefact{settings.artefact.c_str(), settings.shared_object.c_str(), inputs.data(), outputs.data(),
                                     inputs.size(),             outputs.size(),                 options.data()};
    adapter_ = find_adapter(settings);
    loaded_ = adapter_->load(&artefact, error_, sizeof error_);
    if (!loaded_) throw Failure(MACHINE, settings.artefact + ": " + error_, "install the runtime of the board's vendor, or build the artefact for the one that is there");
    for (size_t i = 0; i < inputs_.size(); i++)
      if (const Offer place = input_bytes_[i] ? placed(false, i, inputs[i].bytes) : Offer{}; place.memory) quantised_[i] = place.memory;
    for (size_t slot = 0; slot < place_.slots.count(); slot++)
      for (size_t i = 0; i < outputs_.size(); i++) {
        share(place_.slots.slot(slot)->ports[i], i);
        if (!settings.on_host[i] || output_bytes_[i] || place_.slots.slot(slot)->ports[i].device || place_.slots.lent(slot, i)) continue;
        if (const Offer place = placed(true, i, outputs[i].bytes); place.memory) place_.slots.lend(slot, i, place.memory, place.bytes);
      }
  }

  Offer offer(size_t number) override { return input_bytes_[number] ? Offer{} : placed(false, number, place_.settings.inputs[number].type.bytes()); }

  Progress launch(const Job& job) override {
    for (size_t i = 0; i < inputs_.size(); i++) {
      const Tensor* tensor = arriving(job, i);
      const TensorType& wanted = place_.settings.inputs[i].type;
      const float scale = place_.settings.input_scales[i];
      if (tensor && adapter_->share && tensor->device && tensor->gpu == 0 && tensor->scale == scale && tensor->type.lies_as(wanted) && tensor->type.bytes() == wanted.bytes()) {
        inputs_[i] = {nullptr, tensor->device};
        continue;
      }
      if (tensor) tensor = input(job, i);
      if (!tensor) return Progress::failed;
      inputs_[i] = {tensor->data, 0};
      if (scale > 0) {
        inputs_[i].host = quantised_[i];
        quantise(static_cast<const float*>(tensor->data), static_cast<int8_t*>(inputs_[i].host), tensor->type.bytes() / sizeof(float), scale);
      }
    }
    for (size_t i = 0; i < outputs_.size(); i++) {
      Tensor& tensor = job.output->ports[i];
      tensor.type = place_.settings.outputs[i];
      if (!tensor.device) share(tensor, i);
      const bool on_host = place_.settings.on_host[i] || !tensor.device;
      tensor.data = on_host ? place_.slots.room(*job.output, i, tensor.type.bytes()) : nullptr;
      outputs_[i] = {on_host && output_bytes_[i] ? output_bytes_[i].get() : tensor.data, tensor.device};
    }
    if (adapter_->run(loaded_, inputs_.data(), outputs_.data(), error_, sizeof error_) != 0) return fail(error_);
    for (size_t i = 0; i < outputs_.size(); i++) {
      if (!output_bytes_[i] || !outputs_[i].host) continue;
      const int8_t* const from = static_cast<const int8_t*>(outputs_[i].host);
      float* const to = static_cast<float*>(job.output->ports[i].data);
      const size_t count = place_.settings.outputs[i].bytes() / sizeof(float);
      for (size_t k = 0; k < count; k++) to[k] = place_.settings.output_scales[i] * static_cast<float>(from[k]);
    }
    return Progress::done;
  }

 private:
  Offer placed(bool is_output, size_t number, size_t bytes) const {
    void* const memory = adapter_->place ? adapter_->place(loaded_, is_output, number, bytes) : nullptr;
    return {memory, memory ? bytes : 0};
  }

  // Give an output memory on the first GPU, if that is read there and has some left; before the run, except in slots added during it.
  void share(Tensor& tensor, size_t number) {
    if (!place_.settings.on_gpu[number] || !adapter_->share || tensor.device) return;
    const float scale = place_.settings.output_scales[number];
    const uint64_t bytes = place_.settings.outputs[number].bytes();
    tensor.device = adapter_->share(loaded_, scale > 0 ? bytes / sizeof(float) : bytes);
    tensor.scale = tensor.device ? scale : 0;
  }

  // Names of ports live in the settings, those of layouts here; a tensor with a scale is int8 in the artefact, and has memory.
  static socsched_port port(const std::string& name, TensorType type, float scale, std::vector<Memory>& bytes) {
    static const char* const plain[] = {"NCHW", "NHWC"};
    if (scale > 0) type.dtype = Dtype::int8;
    bytes.push_back(scale > 0 ? allocate(type.bytes()) : Memory());
    socsched_port made{name.c_str(), "", static_cast<int32_t>(type.dtype), 0, {}, type.bytes()};
    std::array<int64_t, MOST_RANK> shape{};
    made.rank = type.physical(shape);
    for (size_t axis = 0; axis < shape.size(); axis++) made.shape[axis] = shape[axis];
    if (type.rank == 4) made.layout = type.layout.block ? "NCHWc" : plain[type.layout.channels_last];
    return made;
  }

  const socsched_adapter* adapter_ = nullptr;
  void* loaded_ = nullptr;
  std::vector<socsched_memory> inputs_, outputs_;
  std::vector<Memory> input_bytes_, output_bytes_;  // of tensors that are int8 in the artefact
  std::vector<void*> quantised_;                    // where such an input is written
  char error_[ERROR_BYTES] = "";
};

}  // namespace

std::unique_ptr<Stage> make_engine_stage(const StagePlace& place) { return std::make_unique<EngineStage>(place); }

}  // namespace socsched
