// A stage made executable.  A CPU stage runs in `launch`; a stage on a device queues its work there and is polled.
#pragma once

#include <memory>
#include <string>

#include "data_slots.hpp"
#include "job.hpp"
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

class Control;

// A stage, and where its outputs go.
struct StagePlace {
  const Task& task;
  const StageSettings& settings;
  const Control& control;
  DataSlots& slots;
};

// Return the stage of a task for its place `number` (`Wiring::places`); Failure if its settings are inconsistent.
std::unique_ptr<Stage> make_stage(const StagePlace& place, size_t number = 0);

}  // namespace socsched
