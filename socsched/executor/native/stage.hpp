// A stage made executable.  A CPU stage runs in `launch`; a stage on a device queues its work there and is polled.
#pragma once

#include <memory>
#include <string>

#include "job.hpp"
#include "settings.hpp"

namespace socsched {

enum class Progress { running, done, failed };

class Stage {
 public:
  virtual ~Stage() = default;

  // Load and allocate whatever a job needs; called once, in the thread that will launch.  Failure if that is impossible.
  virtual void prepare() {}

  // Begin a job; it must neither allocate nor wait for other jobs.  `done` if it is complete on return.
  virtual Progress launch(const Job& job) = 0;

  // The progress of the job launched last; called until it is no longer `running`.
  virtual Progress poll() { return Progress::done; }

  // Why the last job failed.
  virtual std::string error() const { return "the stage failed"; }
};

// Return the stage of a task: a load of its planned time unless the settings name another kind.
std::unique_ptr<Stage> make_stage(const Task& task, const Settings& settings);

}  // namespace socsched
