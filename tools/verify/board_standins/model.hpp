// What the stand-ins for vendors' libraries compute with: ONNX Runtime on the processor, behind the vendors' interfaces.
//
// A model is a text (`board_root.py` writes them): "onnx PATH", then a line for each input and output in the artefact's
// order, "input NAME DTYPE LAYOUT SCALE SIZE...", with LAYOUT - where there is none and SCALE 0 where it is not int8.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "adapters.hpp"
#include "tensor.hpp"

namespace standin {

using namespace socsched;

struct Port {
  std::string name;
  TensorType own, plain;  // in the artefact, and as ONNX Runtime takes it: fp32 channels first, or as it is
  float scale = 0;
  Memory memory;          // plain
  Memory bytes;           // floats in the artefact's layout, where it is int8

  size_t size() const { return scale > 0 ? own.bytes() / sizeof(float) : own.bytes(); }
};

class Model {
 public:
  explicit Model(std::istream& text) {
    std::string line, word, onnx;
    while (std::getline(text, line)) {
      std::istringstream words(line);
      words >> word;
      if (word == "onnx") words >> onnx;
      else if (word == "input" || word == "output") read(words, word == "output" ? outputs : inputs);
    }
    if (onnx.empty() || inputs.empty() || outputs.empty()) throw std::runtime_error("no model");
    std::vector<socsched_port> ports[2];
    for (auto* side : {&inputs, &outputs})
      for (Port& port : *side) ports[side == &outputs].push_back(described(port));
    static const char* const options[] = {"threads", "1", nullptr};
    const socsched_artefact artefact{onnx.c_str(), std::getenv("STANDIN_ORT"), ports[0].data(), ports[1].data(), inputs.size(), outputs.size(), options};
    char error[500] = "";
    loaded_ = onnxruntime_adapter()->load(&artefact, error, sizeof error);
    if (!loaded_) throw std::runtime_error(error);
  }

  // Run over tensors in the artefact's forms.
  void run(const void* const* from, void* const* to) {
    std::vector<void*> given, made;
    for (size_t i = 0; i < inputs.size(); i++) {
      Port& port = inputs[i];
      Tensor source{const_cast<void*>(from[i]), port.own};
      if (port.scale > 0) {
        float* const floats = static_cast<float*>(source.data = port.bytes.get());
        for (size_t k = 0; k < port.size(); k++) floats[k] = port.scale * static_cast<const int8_t*>(from[i])[k];
      }
      Tensor target{port.memory.get(), port.plain};
      convert(source, target);
      given.push_back(target.data);
    }
    for (Port& port : outputs) made.push_back(port.memory.get());
    char error[500] = "";
    if (onnxruntime_adapter()->run(loaded_, given.data(), made.data(), error, sizeof error)) throw std::runtime_error(error);
    for (size_t i = 0; i < outputs.size(); i++) {
      Port& port = outputs[i];
      Tensor source{port.memory.get(), port.plain}, target{port.scale > 0 ? port.bytes.get() : to[i], port.own};
      convert(source, target);
      for (size_t k = 0; port.scale > 0 && k < port.size(); k++)
        static_cast<int8_t*>(to[i])[k] = static_cast<int8_t>(std::lrintf(std::min(std::max(static_cast<float*>(port.bytes.get())[k] / port.scale, -128.0f), 127.0f)));
    }
  }

  std::vector<Port> inputs, outputs;

 private:
  static void read(std::istringstream& words, std::vector<Port>& side) {
    Port& port = side.emplace_back();
    std::string dtype, layout;
    words >> port.name >> dtype >> layout >> port.scale;
    const auto& names = dtype_names();
    port.own.dtype = static_cast<Dtype>(std::find(names.begin(), names.end(), dtype) - names.begin());
    if (layout != "-") parse_layout(layout, port.own.layout);
    for (int64_t size; words >> size;) port.own.shape[static_cast<size_t>(port.own.rank++)] = size;
    port.plain = port.own;
    port.plain.layout = {};
    if (port.own.dtype == Dtype::fp16) port.plain.dtype = Dtype::fp32;
    port.memory = allocate(port.plain.bytes());
    if (port.scale > 0) port.bytes = allocate(port.own.bytes());
  }

  static socsched_port described(const Port& port) {
    socsched_port made{port.name.c_str(), "", static_cast<int32_t>(port.plain.dtype), port.plain.rank, {}, port.plain.bytes()};
    for (int axis = 0; axis < port.plain.rank; axis++) made.shape[axis] = port.plain.shape[static_cast<size_t>(axis)];
    return made;
  }

  void* loaded_ = nullptr;
};

// The model that stands for an artefact which a vendor's compiler made: it is found by the artefact's size.
inline std::unique_ptr<Model> model_of(size_t size) {
  std::ifstream text(std::string(std::getenv("STANDIN_MODELS")) + "/" + std::to_string(size) + ".txt");
  return std::make_unique<Model>(text);
}

}  // namespace standin
