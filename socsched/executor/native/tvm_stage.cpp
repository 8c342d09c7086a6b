// Networks compiled by TVM: a virtual machine for each stage, loaded and called through TVM's C ABI.
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <optional>

#include "data_stage.hpp"
#include "failure.hpp"
#include "parallel.hpp"
#include "tvm_abi.hpp"

namespace socsched {

namespace {

constexpr int POOLED = 2;  // the virtual machine's kind of allocator

// TVM's runtime, loaded once.
class Runtime {
 public:
  static Runtime& instance(const std::vector<std::string>& libraries) {
    static std::mutex once;
    static Runtime runtime;
    const std::lock_guard<std::mutex> lock(once);
    if (!runtime.call_) runtime.load(libraries);
    return runtime;
  }

  // Call a function; Failure with TVM's message if it fails.  The result is owned.
  tvm::Any call(tvm::Object* function, tvm::Any* arguments, int count) {
    tvm::Any result{};
    if (call_(function, arguments, count, &result) != 0) throw Failure(MACHINE, raised());
    return result;
  }

  tvm::Object* global(const std::string& name) {
    const tvm::Text text{name.data(), name.size()};
    tvm::Object* found = nullptr;
    if (global_(&text, &found) != 0 || !found) throw Failure(MACHINE, "TVM's runtime has no function " + name, HINT);
    return found;
  }

  tvm::Object* function(tvm::Object* module, const char* name) {
    tvm::Any arguments[3] = {of(module), text(name), integer(0)};
    const tvm::Any found = call(function_of_, arguments, 3);
    if (found.type_index < 64) throw Failure(MACHINE, std::string("the compiled stage has no function ") + name, "compile it again");
    return found.object;
  }

  tvm::Object* load_module(const std::string& path) {
    tvm::Any argument = text(path.c_str());
    return call(load_module_, &argument, 1).object;
  }

  void set_threads(int count) {
    tvm::Any arguments[2] = {integer(1), integer(count)};
    call(threads_, arguments, 2);
  }

  // A tensor object for memory that outlives it.
  tvm::Object* tensor(tvm::ManagedArray* array) {
    tvm::Object* made = nullptr;
    if (from_dlpack_(array, 0, 0, &made) != 0) throw Failure(MACHINE, raised());
    return made;
  }

  void retain(void* object) { retain_(object); }
  void release(void* object) { release_(object); }

  static tvm::Any integer(int64_t value) {
    tvm::Any any{tvm::INT, 0, {}};
    any.integer = value;
    return any;
  }

  static tvm::Any text(const char* value) {
    tvm::Any any{tvm::RAW_TEXT, 0, {}};
    any.text = value;
    return any;
  }

  static tvm::Any of(tvm::Object* object) {
    tvm::Any any{object->type_index, 0, {}};
    any.object = object;
    return any;
  }

 private:
  static constexpr const char* HINT = "install the pinned versions of apache-tvm and apache-tvm-ffi";

  void load(const std::vector<std::string>& libraries) {
    for (const std::string& library : libraries)
      if (!dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL)) throw Failure(MACHINE, library + ": cannot be loaded: " + dlerror(), HINT);
    find("TVMFFIFunctionGetGlobal", global_);
    find("TVMFFIErrorMoveFromRaised", raised_);
    find("TVMFFITensorFromDLPack", from_dlpack_);
    find("TVMFFIObjectIncRef", retain_);
    find("TVMFFIObjectDecRef", release_);
    load_module_ = global("ffi.ModuleLoadFromFile");
    function_of_ = global("ffi.ModuleGetFunction");
    threads_ = global("runtime.config_threadpool");
    find("TVMFFIFunctionCall", call_);
  }

  template <class F>
  void find(const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
    if (!function) throw Failure(MACHINE, std::string("TVM's runtime lacks ") + name, HINT);
  }

  std::string raised() {
    tvm::Object* error = nullptr;
    raised_(&error);
    if (!error) return "TVM failed without a message";
    const tvm::ErrorCell* const cell = tvm::content<tvm::ErrorCell>(error);
    const std::string message = std::string(cell->kind.data, cell->kind.size) + ": " + std::string(cell->message.data, cell->message.size);
    release_(error);
    return message;
  }

  int (*call_)(tvm::Object*, tvm::Any*, int32_t, tvm::Any*) = nullptr;
  int (*global_)(const tvm::Text*, tvm::Object**) = nullptr;
  void (*raised_)(tvm::Object**) = nullptr;
  int (*from_dlpack_)(tvm::ManagedArray*, int32_t, int32_t, tvm::Object**) = nullptr;
  int (*retain_)(void*) = nullptr;
  int (*release_)(void*) = nullptr;
  tvm::Object *load_module_ = nullptr, *function_of_ = nullptr, *threads_ = nullptr;
};

tvm::DataType type_of(Dtype dtype) {
  static const tvm::DataType types[] = {{2, 32, 1}, {2, 16, 1}, {0, 8, 1}, {1, 8, 1}, {0, 32, 1}, {0, 64, 1}, {6, 8, 1}};
  return types[static_cast<size_t>(dtype)];
}

void leave(tvm::ManagedArray*) {}

class TvmStage : public DataStage {
 public:
  explicit TvmStage(const StagePlace& place) : DataStage(place), inputs_(place.settings.inputs.size()) {}

  void prepare() override {
    runtime_ = &Runtime::instance(place_.control.settings().tvm);
    try {
      tvm::Object* const library = runtime_->load_module(place_.settings.shared_object);
      tvm::Object* const load = runtime_->function(library, "vm_load_executable");
      module_ = runtime_->call(load, nullptr, 0).object;
      tvm::Object* const initialise = runtime_->function(module_, "vm_initialization");
      tvm::Any device[3] = {Runtime::integer(tvm::CPU), Runtime::integer(0), Runtime::integer(POOLED)};
      runtime_->call(initialise, device, 3);
      main_ = runtime_->function(module_, "main");
      if (!share_kernels() && place_.settings.threads) runtime_->set_threads(place_.settings.threads);
    } catch (const Failure& failure) {
      throw Failure(MACHINE, place_.settings.shared_object + ": cannot be loaded: " + failure.what(), "delete it; it is built again");
    }
  }

  Progress launch(const Job& job) override {
    release_outputs(*job.output);
    tvm::Any arguments[MOST_INPUTS];
    size_t count = 0;
    for (; count < inputs_.size(); count++) {
      const Tensor* const tensor = input(job, count);
      if (!tensor) break;
      if (tensor->object)
        runtime_->retain(tensor->object);
      else
        inputs_[count].wrap(*runtime_, *tensor);
      arguments[count] = Runtime::of(static_cast<tvm::Object*>(tensor->object ? tensor->object : inputs_[count].object));
    }
    Progress progress = Progress::failed;
    if (count == inputs_.size()) {
      std::optional<Crew::Job> shared;
      if (crew_) shared.emplace(*crew_);
      try {
        progress = keep(runtime_->call(main_, arguments, static_cast<int>(count)), *job.output);
      } catch (const Failure& failure) {
        fail(failure.what());
      }
    }
    for (size_t i = 0; i < count; i++) runtime_->release(arguments[i].object);
    return progress;
  }

 private:
  static constexpr size_t MOST_INPUTS = 64;

  // An input in memory that TVM does not own.
  struct Input {
    tvm::ManagedArray array{};
    std::array<int64_t, MOST_RANK> shape{};
    tvm::Object* object = nullptr;

    void wrap(Runtime& runtime, const Tensor& tensor) {
      array.array = {tensor.data, tvm::CPU, 0, tensor.type.physical(shape), type_of(tensor.type.dtype), shape.data(), nullptr, 0};
      array.deleter = leave;
      object = runtime.tensor(&array);
    }
  };

  // Have the library's kernels computed by the crew instead of TVM's threads, which wait for a disturbed one.  Return false
  // for a library whose kernels need threads that wait for each other: then TVM's remain.
  bool share_kernels() {
    void* const library = dlopen(place_.settings.shared_object.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library || dlsym(library, "__TVMBackendParallelBarrier")) return false;
    void* const hook = dlsym(library, "__TVMBackendParallelLaunch");
    if (!hook) return false;  // no kernel is parallel
    const int threads = place_.settings.threads ? place_.settings.threads : static_cast<int>(place_.task.lanes.size());
    thread_local std::vector<std::unique_ptr<Crew>> crews;  // of a worker, whose stages run one at a time
    for (const auto& known : crews)
      if (known->threads() == threads) crew_ = known.get();
    if (!crew_) crew_ = crews.emplace_back(std::make_unique<Crew>(threads)).get();
    __atomic_store_n(static_cast<decltype(&launch_in_parallel)*>(hook), &launch_in_parallel, __ATOMIC_RELEASE);
    return true;
  }

  void release_outputs(Data& slot) {
    for (Tensor& port : slot.ports)
      if (port.object) {
        runtime_->release(port.object);
        port.object = nullptr;
      }
  }

  // Put the result, one tensor or an array of them, into a slot.
  Progress keep(const tvm::Any& result, Data& slot) {
    const size_t ports = place_.settings.outputs.size();
    if (result.type_index == tvm::TENSOR && ports == 1) return put(result, 0, slot);
    if (result.type_index != tvm::ARRAY || tvm::content<tvm::Sequence>(result.object)->size != static_cast<int64_t>(ports)) {
      if (result.type_index >= 64) runtime_->release(result.object);
      return fail("it returned something else than its outputs");
    }
    const tvm::Any* const items = tvm::content<tvm::Sequence>(result.object)->items;
    Progress progress = Progress::done;
    for (size_t port = 0; port < ports; port++) {
      if (items[port].type_index == tvm::TENSOR) runtime_->retain(items[port].object);
      if (put(items[port], port, slot) == Progress::failed) progress = Progress::failed;
    }
    runtime_->release(result.object);
    return progress;
  }

  Progress put(const tvm::Any& found, size_t port, Data& slot) {
    if (found.type_index != tvm::TENSOR) return fail("an output is not a tensor");
    Tensor& tensor = slot.ports[port];
    tensor.object = found.object;
    const tvm::Array* const array = tvm::content<tvm::Array>(found.object);
    tensor.data = static_cast<char*>(array->data) + array->offset;
    tensor.type = place_.settings.outputs[port];
    const tvm::DataType wanted = type_of(tensor.type.dtype);
    std::array<int64_t, MOST_RANK> sizes{};
    const int rank = tensor.type.physical(sizes);
    bool fits = array->rank == rank && array->dtype.code == wanted.code && array->dtype.bits == wanted.bits;
    for (int i = 0; fits && i < rank; i++) {
      int64_t& size = sizes[static_cast<size_t>(i)];
      if (size < 0 && rank != 4 && rank != 5) size = tensor.type.shape[static_cast<size_t>(i)] = array->shape[i];
      fits = size == array->shape[i];
    }
    return fits ? Progress::done : fail("an output has another type or shape than was compiled");
  }

  Runtime* runtime_ = nullptr;
  tvm::Object *module_ = nullptr, *main_ = nullptr;
  std::vector<Input> inputs_;
  Crew* crew_ = nullptr;
};

}  // namespace

std::unique_ptr<Stage> make_tvm_stage(const StagePlace& place) {
  if (place.control.settings().tvm.empty()) throw Failure(USAGE, place.task.name + ": the settings name no libraries of TVM", "write them again");
  return std::make_unique<TvmStage>(place);
}

}  // namespace socsched
