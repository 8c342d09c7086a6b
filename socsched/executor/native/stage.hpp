// A stage made executable.  A CPU stage runs in `launch`; a stage on a device queues its work there and is polled.
#pragma once

#include <algorithm>
#include <dlfcn.h>
#include <memory>
#include <string>
#include <vector>

#include "realtime.hpp"
#include "control.hpp"
#include "data_slots.hpp"
#include "failure.hpp"
#include "job.hpp"
#include "mailbox.hpp"
#include "settings.hpp"

namespace socsched {

enum class Progress { running, done, failed };

class Stage {
 public:
  virtual ~Stage() = default;

  // Load and allocate whatever a job needs; called once, in the thread that will launch.  Failure if that is impossible.
  virtual void prepare() {}

  // Memory for an input from which this stage takes it without a copy, aligned to 64 bytes, and its size; new each time,
  // none if it takes copies.  Called once stages are prepared; nobody but the maker of the input and this stage uses it.
  struct Offer {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  virtual Offer offer(size_t) { return {}; }

  // Begin a job; it must neither allocate nor wait for other jobs.  `done` if it is complete on return.
  virtual Progress launch(const Job& job) = 0;

  // The progress of the job launched last; called until it is no longer `running`.
  virtual Progress poll() { return Progress::done; }

  // When the device was busy with the job that ended last, on the monotonic clock, where its own tells; else 0.
  struct Busy {
    Ns from = 0, until = 0;
  };
  virtual Busy busy() const { return {}; }

  // Show the outputs of a job that is done to whoever wants to see them.
  virtual void show(const Job&) {}

  // Why the last job failed.
  virtual std::string error() const { return "the stage failed"; }

  // What the user should know after the run; empty if nothing.
  virtual std::string notice() const { return ""; }
};

// A stage, and where its outputs go.
struct StagePlace {
  const Task& task;
  const StageSettings& settings;
  const Control& control;
  DataSlots& slots;
};

// Whether a tensor has the shape that a stage takes; a fixed size may be divided among axes in another way.
inline bool fits(const TensorType& wanted, const TensorType& found) {
  if (wanted.fixed()) return wanted.elements() >= 0 && wanted.elements() == found.elements();
  bool equal = wanted.rank == found.rank;
  for (int i = 0; i < wanted.rank; i++) {
    const int64_t size = wanted.shape[static_cast<size_t>(i)];
    equal &= size < 0 || size == found.shape[static_cast<size_t>(i)];
  }
  return equal;
}

class DataStage : public Stage {
 public:
  explicit DataStage(const StagePlace& place) : place_(place) {
    for (const InputSettings& input : place.settings.inputs) {
      const int data = place.control.data_number(place.control.names().find(input.from));
      if (data < 0) throw Failure(USAGE, place.task.name + ": reads " + input.from + ", which it does not need", "write the settings again");
      data_.push_back(data);
    }
    converted_.resize(data_.size());
  }

  std::string error() const override { return error_; }

 protected:
  // An input of a job, converted if it lies otherwise than the stage wants it; null, with an error, if it does not fit.
  const Tensor* input(const Job& job, size_t number) {
    const Tensor* const found = arriving(job, number);
    if (!found) return nullptr;
    const InputSettings& wanted = place_.settings.inputs[number];
    if (!found->data && found->device) {
      fail("data from " + wanted.from + " are on the device only");
      return nullptr;
    }
    if (!fits(wanted.type, found->type)) {
      fail("data from " + wanted.from + " have another shape than it takes");
      return nullptr;
    }
    if (found->type.lies_as(wanted.type)) return found;
    Converted& own = converted_[number];
    own.tensor.type = found->type.form(wanted.type);
    if (const size_t bytes = own.tensor.type.bytes(); own.bytes < bytes) {
      const Offer offered = own.bytes ? Offer{} : offer(number);
      const bool placed = offered.bytes >= bytes;
      const size_t room = placed ? offered.bytes : bytes + bytes / 4;  // sizes vary a little between frames
      require_room(bytes, 1, place_.task.name);
      own.place = placed ? offered.memory : nullptr;
      own.memory = placed ? nullptr : allocate(room);
      own.bytes = room;
    }
    own.tensor.data = own.place ? own.place : own.memory.get();
    if (convert(*found, own.tensor)) return &own.tensor;
    fail("data from " + wanted.from + " have another data type than it takes");
    return nullptr;
  }

  // The same in the form in which it arrives.
  const Tensor* arriving(const Job& job, size_t number) {
    const InputSettings& wanted = place_.settings.inputs[number];
    const Data* const data = job.given.data[data_[number]];
    if (!data || wanted.port >= data->ports.size() || (!data->ports[wanted.port].data && !data->ports[wanted.port].device)) {
      fail("no data from " + wanted.from);
      return nullptr;
    }
    return &data->ports[wanted.port];
  }

  Progress fail(const std::string& why) {
    error_ = place_.task.name + ": " + why;
    return Progress::failed;
  }

  StagePlace place_;

 private:
  struct Converted {
    Tensor tensor;
    void* place = nullptr;  // offered by the stage
    Memory memory;          // or its own
    size_t bytes = 0;
  };

  std::vector<int> data_;              // by input: the number of its data
  std::vector<Converted> converted_;   // by input
  std::string error_;
};

std::unique_ptr<Stage> make_host_stage(const StagePlace& place);

std::unique_ptr<Stage> make_network_stage(const StagePlace& place);

std::unique_ptr<Stage> make_cuda_stage(const StagePlace& place);

std::unique_ptr<Stage> make_load_stage(const StagePlace& place);

std::unique_ptr<Stage> make_opencl_stage(const StagePlace& place);

std::unique_ptr<Stage> make_engine_stage(const StagePlace& place);

std::unique_ptr<Stage> make_callback_stage(const StagePlace& place, size_t number);

std::unique_ptr<Stage> make_observed_stage(std::unique_ptr<Stage> stage, int socket);

// Brings the outputs of another stage into other data types and layouts, port by port.
class ConvertStage : public DataStage {
 public:
  using DataStage::DataStage;

  Progress launch(const Job& job) override {
    for (size_t i = 0; i < place_.settings.inputs.size(); i++) {
      const InputSettings& wanted = place_.settings.inputs[i];
      const Tensor* const from = arriving(job, i);
      if (!from) return Progress::failed;
      Tensor& to = job.output->ports[wanted.port];
      to.type = from->type.form(wanted.type);
      to.data = place_.slots.room(*job.output, wanted.port, to.type.bytes());
      if (!convert(*from, to)) return fail("no conversion between these data types");
    }
    return Progress::done;
  }
};

// Give outputs of a GPU stage their types: those of varying size have the rows of the input, or, on the host, those that
// their marking port has in use.
inline void set_rows(const StageSettings& settings, Data& output, int64_t rows) {
  int64_t used = -1;
  if (const int port = settings.marks; port >= 0 && output.ports[static_cast<size_t>(port)].data) {
    const int32_t* const marks = static_cast<const int32_t*>(output.ports[static_cast<size_t>(port)].data);
    const int64_t most = settings.outputs[static_cast<size_t>(port)].shape[0];
    used = std::count_if(marks, marks + most, [&](int32_t mark) { return mark >= settings.least_mark; });
  }
  for (size_t port = 0; port < settings.outputs.size(); port++) {
    TensorType& type = output.ports[port].type;
    type = settings.outputs[port];
    if (type.rank && type.shape[0] < 0) type.shape[0] = rows;
    if (type.rank && used >= 0) type.shape[0] = used;
  }
}

inline std::unique_ptr<Stage> make_convert_stage(const StagePlace& place) { return std::make_unique<ConvertStage>(place); }

// Keeps its processor busy.  It counts its own processor time, so that a disturbed stage ends later, as a real one would.
class SpinStage : public Stage {
 public:
  SpinStage(Ns time, Ns cheap) : time_(time), cheap_(cheap) {}

  Progress launch(const Job& job) override {
    const Ns end = thread_time_ns() + (job.cheap ? cheap_ : time_);
    while (thread_time_ns() < end) relax();
    return Progress::done;
  }

 private:
  Ns time_, cheap_;
};

// Occupies its lanes without using a processor.
class SleepStage : public Stage {
 public:
  SleepStage(Ns time, Ns cheap) : time_(time), cheap_(cheap) {}

  Progress launch(const Job& job) override {
    sleep_until(monotonic_ns() + (job.cheap ? cheap_ : time_));
    return Progress::done;
  }

 private:
  Ns time_, cheap_;
};

// A function `int32_t NAME(int64_t frame, int32_t cheap)` of a shared object; 0 is success.
class CallStage : public Stage {
 public:
  CallStage(std::string library, std::string function) : library_(std::move(library)), function_(std::move(function)) {}

  void prepare() override {
    void* const handle = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw Failure(MACHINE, library_ + ": cannot be loaded: " + dlerror(), "compile the stage for this machine");
    call_ = reinterpret_cast<Call>(dlsym(handle, function_.c_str()));
    if (!call_) throw Failure(MACHINE, library_ + ": has no function " + function_, "compile the stage again");
  }

  Progress launch(const Job& job) override {
    code_ = call_(job.frame, job.cheap);
    return code_ == 0 ? Progress::done : Progress::failed;
  }

  std::string error() const override { return function_ + " returned " + std::to_string(code_); }

 private:
  using Call = int32_t (*)(int64_t, int32_t);

  std::string library_, function_;
  Call call_ = nullptr;
  int32_t code_ = 0;
};

// A stage with a cheaper variant, for jobs that would be late otherwise.
class DegradingStage : public Stage {
 public:
  DegradingStage(std::unique_ptr<Stage> whole, std::unique_ptr<Stage> cheap) : whole_(std::move(whole)), cheap_(std::move(cheap)), last_(whole_.get()) {}

  void prepare() override {
    whole_->prepare();
    cheap_->prepare();
  }

  Progress launch(const Job& job) override {
    if (!warm_) {  // by the first job, of the warm-up: either may be needed in the run
      warm_ = true;
      last_ = cheap_.get();
      if (const Progress progress = cheap_->launch(job); progress != Progress::done) return progress;
    }
    last_ = job.cheap ? cheap_.get() : whole_.get();
    return last_->launch(job);
  }

  Progress poll() override { return last_->poll(); }
  std::string error() const override { return last_->error(); }

 private:
  std::unique_ptr<Stage> whole_, cheap_;
  Stage* last_;
  bool warm_ = false;
};

inline std::unique_ptr<Stage> make_unobserved(const StagePlace& place, size_t number) {
  const StageSettings& how = place.settings;
  if (how.cheaper) return std::make_unique<DegradingStage>(make_network_stage(place), make_network_stage({place.task, *how.cheaper, place.control, place.slots}));
  if (how.kind == "callback") return make_callback_stage(place, number);
  if (how.kind == "host") return make_host_stage(place);
  if (how.kind == "network") return make_network_stage(place);
  if (how.kind == "convert") return make_convert_stage(place);
  if (how.kind == "cuda") return make_cuda_stage(place);
  if (how.kind == "load") return make_load_stage(place);
  if (how.kind == "opencl") return make_opencl_stage(place);
  if (how.kind == "engine") return make_engine_stage(place);
  if (how.kind == "call") return std::make_unique<CallStage>(how.shared_object, how.function);
  const Ns time = how.time < 0 ? place.task.cost : how.time, cheap = how.cheap_time < 0 ? time / 2 : how.cheap_time;
  if (how.kind == "sleep") return std::make_unique<SleepStage>(time, cheap);
  return std::make_unique<SpinStage>(time, cheap);
}

// Return the stage of a task for its place `number` (`Wiring::places`); Failure if its settings are inconsistent.
inline std::unique_ptr<Stage> make_stage(const StagePlace& place, size_t number = 0) {
  std::unique_ptr<Stage> stage = make_unobserved(place, number);
  const std::vector<int>& observers = place.settings.observers;
  return number < observers.size() ? make_observed_stage(std::move(stage), observers[number]) : std::move(stage);
}

}  // namespace socsched
