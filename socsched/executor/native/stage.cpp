#include "stage.hpp"

#include <dlfcn.h>

#include "clock.hpp"
#include "data_stage.hpp"
#include "failure.hpp"
#include "mailbox.hpp"

namespace socsched {

namespace {

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

}  // namespace

namespace {

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

std::unique_ptr<Stage> make_unobserved(const StagePlace& place, size_t number) {
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

}  // namespace

std::unique_ptr<Stage> make_stage(const StagePlace& place, size_t number) {
  std::unique_ptr<Stage> stage = make_unobserved(place, number);
  const std::vector<int>& observers = place.settings.observers;
  return number < observers.size() ? make_observed_stage(std::move(stage), observers[number]) : std::move(stage);
}

}  // namespace socsched
