// DLA loadables through cuDLA, loaded at run time; declarations follow cudla.h 1.2 (cuDLA API, "Data types used").
//
// cuDLA's hybrid mode: memory is CUDA's and tasks go into a CUDA stream, so that GPU and DLA share buffers without NvSci.
#include <cstring>

#include "adapters.hpp"
#include "cuda_driver.hpp"

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
  explicit Cudla(const socsched_artefact& artefact) : library_(artefact.vendor_library), device_(cuda::Device::open()) {
    uint64_t core = 0;
    for (const char* const* option = artefact.options; *option; option += 2)
      if (std::strcmp(option[0], "core") == 0) core = std::strtoull(option[1], nullptr, 10);
    library_.find("cudlaCreateDevice", create_);
    library_.find("cudlaModuleLoadFromMemory", load_);
    library_.find("cudlaModuleGetAttributes", get_);
    library_.find("cudlaMemRegister", register_);
    library_.find("cudlaSubmitTask", submit_);
    library_.find("cudlaGetLastError", last_error_);
    stream_ = device_.stream(SOFT);
    check(create_(core, &dla_, HYBRID), "cudlaCreateDevice");
    model_ = read_artefact(artefact.file);
    check(load_(dla_, reinterpret_cast<const uint8_t*>(model_.data()), model_.size(), &loadable_, 0), "cudlaModuleLoadFromMemory");
    arrange(artefact.inputs, artefact.input_count, INPUT_COUNT, INPUTS, inputs_);
    arrange(artefact.outputs, artefact.output_count, OUTPUT_COUNT, OUTPUTS, outputs_);
  }

  void run(void* const* inputs, void* const* outputs) {
    const cuda::Driver& driver = device_.driver();
    for (size_t i = 0; i < inputs_.ports.size(); i++)
      device_.check(driver.cuMemcpyHtoDAsync_v2(inputs_.ports[i].memory, inputs[i], inputs_.ports[i].bytes, stream_), "copying an input");
    const Task task{loadable_, outputs_.registered.data(), static_cast<uint32_t>(outputs_.registered.size()),
                    static_cast<uint32_t>(inputs_.registered.size()), inputs_.registered.data(), nullptr, nullptr};
    check(submit_(dla_, &task, 1, stream_, 0), "cudlaSubmitTask");
    for (size_t i = 0; i < outputs_.ports.size(); i++)
      device_.check(driver.cuMemcpyDtoHAsync_v2(outputs[i], outputs_.ports[i].memory, outputs_.ports[i].bytes, stream_), "copying an output");
    device_.check(driver.cuStreamSynchronize(stream_), "running the loadable");
    check(last_error_(dla_), "the task");
  }

 private:
  struct Port {
    cuda::Address memory;
    uint64_t bytes;
  };

  struct Side {
    std::vector<Port> ports;            // in the order of the stage's
    std::vector<uint64_t*> registered;  // in the order of the loadable's
  };

  static void check(int status, const char* what) {
    if (status) throw std::runtime_error(std::string("cuDLA: ") + what + " failed with " + std::to_string(status));
  }

  // Give every tensor of the loadable the memory of the port of its name, which has to have its size.
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
      Port port{0, ports[i].bytes};
      device_.check(device_.driver().cuMemAlloc_v2(&port.memory, port.bytes), "allocating memory");
      check(register_(dla_, reinterpret_cast<const uint64_t*>(port.memory), port.bytes, &side.registered[place], 0), "cudlaMemRegister");
      side.ports.push_back(port);
    }
  }

  Library library_;
  const cuda::Device& device_;
  cuda::Stream* stream_ = nullptr;
  Dla* dla_ = nullptr;
  Loadable* loadable_ = nullptr;
  std::vector<char> model_;
  Side inputs_, outputs_;
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
