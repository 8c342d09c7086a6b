// DLA loadables through cuDLA, loaded at run time; declarations follow cudla.h 1.2 (cuDLA API, "Data types used").
//
// cuDLA's hybrid mode: memory is CUDA's and tasks go into a CUDA stream, so that GPU and DLA share buffers without NvSci.
#include <cstring>
#include <map>

#include "adapters.hpp"
#include "gpu_ports.hpp"

namespace socsched {

namespace {

struct Dla;        // cudlaDevHandle
struct Loadable;   // cudlaModule

struct Descriptor {  // cudlaModuleTensorDescriptor
  char name[81];
  uint64_t size, n, c, h, w;
  uint8_t format, type, category, pixel_format, pixel_mapping;
  uint32_t stride[8];
};

union Attribute {  // cudlaModuleAttribute
  uint32_t count;
  Descriptor* descriptors;
};

struct Task {      // cudlaTask
  Loadable* loadable;
  uint64_t* const* outputs;
  uint32_t output_count, input_count;
  const uint64_t* const* inputs;
  const void* waits;
  void* signals;
};

enum Query { INPUT_COUNT = 0, OUTPUT_COUNT = 1, INPUTS = 2, OUTPUTS = 3 };
constexpr uint32_t HYBRID = 0;
constexpr int SOFT = 0;

class Cudla {
 public:
  explicit Cudla(const socsched_artefact& artefact) : library_(artefact.vendor_library), device_(cuda::Device::open()), stream_(device_.stream(SOFT)) {
    uint64_t core = 0;
    for (const char* const* option = artefact.options; *option; option += 2)
      if (std::strcmp(option[0], "core") == 0) core = std::strtoull(option[1], nullptr, 10);
    library_.find("cudlaCreateDevice", create_);
    library_.find("cudlaModuleLoadFromMemory", load_);
    library_.find("cudlaModuleGetAttributes", get_);
    library_.find("cudlaMemRegister", register_);
    library_.find("cudlaSubmitTask", submit_);
    library_.find("cudlaGetLastError", last_error_);
    check(create_(core, &dla_, HYBRID), "cudlaCreateDevice");
    model_ = read_artefact(artefact.file);
    check(load_(dla_, reinterpret_cast<const uint8_t*>(model_.data()), model_.size(), &loadable_, 0), "cudlaModuleLoadFromMemory");
    arrange(artefact.inputs, artefact.input_count, INPUT_COUNT, INPUTS, inputs_);
    arrange(artefact.outputs, artefact.output_count, OUTPUT_COUNT, OUTPUTS, outputs_);
  }

  void run(const socsched_memory* inputs, const socsched_memory* outputs) {
    for (size_t i = 0; i < inputs_.places.size(); i++) inputs_.registered[inputs_.places[i]] = registered(inputs_.ports.own(i, inputs[i]), inputs_.ports.bytes(i));
    for (size_t i = 0; i < outputs_.places.size(); i++) outputs_.registered[outputs_.places[i]] = registered(outputs_.ports.out(i, outputs[i]), outputs_.ports.bytes(i));
    const Task task{loadable_, outputs_.registered.data(), static_cast<uint32_t>(outputs_.registered.size()),
                    static_cast<uint32_t>(inputs_.registered.size()), inputs_.registered.data(), nullptr, nullptr};
    check(submit_(dla_, &task, 1, stream_, 0), "cudlaSubmitTask");
    for (size_t i = 0; i < outputs_.places.size(); i++) outputs_.ports.fetch(i, outputs[i]);
    device_.check(device_.driver().cuStreamSynchronize(stream_), "running the loadable");
    check(last_error_(dla_), "the task");
  }

  uint64_t share(uint64_t bytes) { return share_on(device_, bytes); }

 private:
  struct Side {
    GpuPorts ports;                     // in the order of the stage's
    std::vector<size_t> places;         // of these in the loadable's order
    std::vector<uint64_t*> registered;  // in the loadable's order
  };

  static void check(int status, const char* what) {
    if (status) throw std::runtime_error(std::string("cuDLA: ") + what + " failed with " + std::to_string(status));
  }

  // Find the tensor of the loadable that has a port's name, which has to have its size.
  void arrange(const socsched_port* ports, size_t count, Query number, Query list, Side& side) {
    Attribute found{};
    check(get_(loadable_, number, &found), "cudlaModuleGetAttributes");
    if (found.count != count) throw std::runtime_error("has other inputs or outputs than it was built with");
    std::vector<Descriptor> descriptors(count);
    found.descriptors = descriptors.data();
    check(get_(loadable_, list, &found), "cudlaModuleGetAttributes");
    side.registered.resize(count);
    for (size_t i = 0; i < count; i++) {
      size_t place = 0;
      while (place < count && std::strncmp(descriptors[place].name, ports[i].name, sizeof Descriptor::name) != 0) place++;
      if (place == count) throw std::runtime_error(std::string(ports[i].name) + ": no tensor of the loadable has this name");
      if (descriptors[place].size != ports[i].bytes) throw std::runtime_error(std::string(ports[i].name) + ": the loadable's tensor has another size");
      side.ports.add(ports[i].bytes);
      side.places.push_back(place);
    }
  }

  // What the DLA calls memory of the GPU, which is registered when it is first seen.
  uint64_t* registered(cuda::Address memory, uint64_t bytes) {
    uint64_t*& made = registered_[memory];
    if (!made) check(register_(dla_, reinterpret_cast<const uint64_t*>(memory), bytes, &made, 0), "cudlaMemRegister");
    return made;
  }

  Library library_;
  const cuda::Device& device_;
  cuda::Stream* const stream_;
  Dla* dla_ = nullptr;
  Loadable* loadable_ = nullptr;
  std::vector<char> model_;
  Side inputs_{{device_, stream_}, {}, {}}, outputs_{{device_, stream_}, {}, {}};
  std::map<cuda::Address, uint64_t*> registered_;
  int (*create_)(uint64_t, Dla**, uint32_t) = nullptr;
  int (*load_)(Dla*, const uint8_t*, size_t, Loadable**, uint32_t) = nullptr;
  int (*get_)(Loadable*, int, Attribute*) = nullptr;
  int (*register_)(Dla*, const uint64_t*, size_t, uint64_t**, uint32_t) = nullptr;
  int (*submit_)(Dla*, const Task*, uint32_t, void*, uint32_t) = nullptr;
  int (*last_error_)(Dla*) = nullptr;
};

}  // namespace

const socsched_adapter* cudla_adapter() { return adapter_of<Cudla>(); }

}  // namespace socsched
