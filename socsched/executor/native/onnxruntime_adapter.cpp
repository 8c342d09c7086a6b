// ONNX models and QNN context binaries through ONNX Runtime's C API, loaded at run time.
//
// OrtApi is a table of functions that only grows; each is known by its position there (onnxruntime_c_api.h and the table
// `ort_api_1_to_25` of onnxruntime_c_api.cc, release 1.25, MIT licence).
//
// With the option `enable_htp_shared_memory_allocator` of Qualcomm's provider tensors lie in RPC memory, which the DSP
// reaches as well (docs of the provider, "HTP shared memory allocator"); without libcdsprpc.so the provider copies.
#include <cstring>
#include <mutex>

#include "adapters.hpp"

namespace socsched {

namespace {

struct OrtApiBase {
  void* const* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

template <class R, class... A>
struct Function {
  using type = R (*)(A...);
  size_t position;
};

using Texts = const char* const*;
constexpr Function<const char*, const void*> GET_ERROR_MESSAGE{2};
constexpr Function<void*, int, const char*, void**> CREATE_ENV{3};
constexpr Function<void*, const void*, const char*, const void*, void**> CREATE_SESSION{7};
constexpr Function<void*, void*, const void*, Texts, void* const*, size_t, Texts, size_t, void**> RUN{9};
constexpr Function<void*, void**> CREATE_SESSION_OPTIONS{10};
constexpr Function<void*, void*, int> SET_LOG_SEVERITY{22}, SET_INTRA_OP_THREADS{24};
constexpr Function<void*, const void*, void*, size_t, const int64_t*, size_t, int, void**> CREATE_TENSOR{49};
constexpr Function<void*, const char*, int, int, int, void**> CREATE_MEMORY_INFO{68};
constexpr Function<void*, int, int, void**> CREATE_CPU_MEMORY_INFO{69};
constexpr Function<void*, void*, size_t, void**> ALLOCATE{75};
constexpr Function<void*, const void*, const void*, void**> CREATE_ALLOCATOR{131};
constexpr Function<void, void*> RELEASE_STATUS{93}, RELEASE_VALUE{96};
constexpr Function<void*, void*, const char*, const char*> ADD_CONFIG_ENTRY{130}, REGISTER_PROVIDER_LIBRARY{301};
constexpr Function<void*, void*, const char*, Texts, Texts, size_t> APPEND_PROVIDER{216};
constexpr Function<void*, const void*, const void* const**, size_t*> GET_DEVICES{303};
constexpr Function<void*, void*, void*, const void* const*, size_t, Texts, Texts, size_t> APPEND_PROVIDER_V2{304};
constexpr Function<const char*, const void*> DEVICE_PROVIDER_NAME{312};

constexpr uint32_t FIRST_VERSION = 12, PLUGIN_VERSION = 22;  // with AppendExecutionProvider by name; with provider libraries
constexpr int FATAL = 4, WARNING = 2, DEVICE_ALLOCATOR = 0, DEFAULT_MEMORY = 0;
constexpr const char* SHARES = "enable_htp_shared_memory_allocator";
constexpr const char* SHARED_MEMORY = "QnnHtpShared";

// The memory that sessions share with the DSP.
Memories<bool>& shared_memory() {
  static Memories<bool>& only = *new Memories<bool>;  // never destroyed
  return only;
}

constexpr int ELEMENT_TYPES[] = {1, 10, 3, 2, 6, 7, 9};      // ONNXTensorElementDataType by SOCSCHED_FP32...

class OnnxRuntime {
 public:
  explicit OnnxRuntime(const socsched_artefact& artefact) : library_(artefact.vendor_library) {
    Options how;
    bool shares = false;
    for (const char* const* option = artefact.options; *option; option += 2) {
      const std::string name = option[0];
      if (name == "provider") how.provider = option[1];
      else if (name == "provider_library") how.plugin = option[1];
      else if (name == "threads") how.threads = std::atoi(option[1]);
      else if (name == SHARES) shares = option[1] == std::string("1");
      else if (name.compare(0, 8, "session.") == 0 || name.compare(0, 3, "ep.") == 0) how.entries.emplace_back(option[0], option[1]);
      else how.names.push_back(option[0]), how.values.push_back(option[1]);
    }
    const OrtApiBase* (*base)();
    library_.find("OrtGetApiBase", base);
    const uint32_t version = how.plugin.empty() ? FIRST_VERSION : PLUGIN_VERSION;
    api_ = base()->GetApi(version);
    if (!api_) throw std::runtime_error(std::string(artefact.vendor_library) + ": release " + base()->GetVersionString() + " is too old: its C API has no version " + std::to_string(version));
    call(CREATE_ENV, WARNING, "socsched", &environment_);
    call(CREATE_CPU_MEMORY_INFO, 1, 0, &memory_);
    if (!shares || !open_sharing(artefact.file, how)) open(artefact.file, how);
    keep(artefact.inputs, artefact.input_count, inputs_, input_names_);
    keep(artefact.outputs, artefact.output_count, outputs_, output_names_);
  }

  void* place(bool, size_t, uint64_t bytes) {
    void* made = nullptr;
    if (!allocator_) return nullptr;
    call(ALLOCATE, allocator_, bytes, &made);
    if (made) shared_memory().add(made, true);
    return made;
  }

  void run(const socsched_memory* inputs, const socsched_memory* outputs) {
    const Values given(*this, inputs_, inputs), found(*this, outputs_, outputs);
    std::vector<const char*> input_names, output_names;
    for (const std::string& name : input_names_) input_names.push_back(name.c_str());
    for (const std::string& name : output_names_) output_names.push_back(name.c_str());
    call(RUN, session_, nullptr, input_names.data(), given.values.data(), given.values.size(), output_names.data(), output_names.size(),
         const_cast<void**>(found.values.data()));
  }

 private:
  struct Options {
    std::string provider, plugin;
    std::vector<const char*> names, values;
    std::vector<std::pair<const char*, const char*>> entries;
    int threads = 0;
  };

  void open(const char* file, const Options& how) {
    void* options = nullptr;
    call(CREATE_SESSION_OPTIONS, &options);
    call(SET_LOG_SEVERITY, options, FATAL);
    if (how.threads) call(SET_INTRA_OP_THREADS, options, how.threads);
    for (const auto& [name, value] : how.entries) call(ADD_CONFIG_ENTRY, options, name, value);
    if (!how.plugin.empty()) {
      const void* const device = device_of(environment_, how.provider, how.plugin);
      call(APPEND_PROVIDER_V2, options, environment_, &device, 1, how.names.data(), how.values.data(), how.names.size());
    } else if (!how.provider.empty()) {
      call(APPEND_PROVIDER, options, how.provider.c_str(), how.names.data(), how.values.data(), how.names.size());
    }
    call(CREATE_SESSION, environment_, file, options, &session_);
  }

  // The same with memory that the DSP reaches; false where there is none.
  bool open_sharing(const char* file, Options how) {
    how.names.push_back(SHARES), how.values.push_back("1");
    try {
      open(file, how);
      call(CREATE_MEMORY_INFO, SHARED_MEMORY, DEVICE_ALLOCATOR, 0, DEFAULT_MEMORY, &shared_);
      call(CREATE_ALLOCATOR, session_, shared_, &allocator_);
    } catch (const std::exception&) {
      allocator_ = nullptr;
    }
    return session_;
  }

  // Tensors over memory of the caller.
  struct Values {
    Values(OnnxRuntime& runtime, const std::vector<socsched_port>& ports, const socsched_memory* memory) : runtime(runtime), values(ports.size()) {
      for (size_t i = 0; i < ports.size(); i++)
        runtime.call(CREATE_TENSOR, runtime.allocator_ && shared_memory().find(memory[i].host) ? runtime.shared_ : runtime.memory_, memory[i].host, ports[i].bytes, ports[i].shape, static_cast<size_t>(ports[i].rank),
                     ELEMENT_TYPES[ports[i].dtype], &values[i]);
    }

    ~Values() {
      for (void* const value : values)
        if (value) runtime.at(RELEASE_VALUE)(value);
    }

    OnnxRuntime& runtime;
    std::vector<void*> values;
  };

  template <class F>
  typename F::type at(const F& function) const {
    return reinterpret_cast<typename F::type>(api_[function.position]);
  }

  template <class F, class... Arguments>
  void call(const F& function, Arguments... arguments) const {
    void* const status = at(function)(arguments...);
    if (!status) return;
    const std::string message = at(GET_ERROR_MESSAGE)(status);
    at(RELEASE_STATUS)(status);
    throw std::runtime_error("ONNX Runtime: " + message);
  }

  // The first device of a provider in a library of its own, which is registered once.
  const void* device_of(void* environment, const std::string& provider, const std::string& plugin) const {
    static std::mutex once;
    const std::lock_guard<std::mutex> lock(once);
    const void* const* devices = nullptr;
    for (const bool registered : {false, true}) {
      if (registered) call(REGISTER_PROVIDER_LIBRARY, environment, provider.c_str(), plugin.c_str());
      size_t count = 0;
      call(GET_DEVICES, environment, &devices, &count);
      for (size_t i = 0; i < count; i++)
        if (provider == at(DEVICE_PROVIDER_NAME)(devices[i])) return devices[i];
    }
    throw std::runtime_error(plugin + ": no device of " + provider);
  }

  static void keep(const socsched_port* ports, size_t count, std::vector<socsched_port>& kept, std::vector<std::string>& names) {
    kept.assign(ports, ports + count);
    for (const socsched_port& port : kept) names.emplace_back(port.name);
  }

  Library library_;
  void* const* api_ = nullptr;
  void *environment_ = nullptr, *session_ = nullptr;
  void *memory_ = nullptr, *shared_ = nullptr, *allocator_ = nullptr;  // kinds of memory; the last makes that of the DSP
  std::vector<socsched_port> inputs_, outputs_;
  std::vector<std::string> input_names_, output_names_;
};

}  // namespace

const socsched_adapter* onnxruntime_adapter() { return adapter_of<OnnxRuntime>(); }

}  // namespace socsched
