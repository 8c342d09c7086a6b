#include "preemption.hpp"

namespace socsched {

bool preempts(const Plan& plan, const Engine& engine) {
  if (engine.preemption == "none") return false;
  std::vector<int> users(static_cast<size_t>(engine.lanes), 0);
  for (const Task& task : plan.tasks)
    if (plan.engines[static_cast<size_t>(task.engine)].id == engine.id)
      for (const int lane : task.lanes)
        if (++users[static_cast<size_t>(lane)] > 1) return true;
  return false;
}

std::string run_to_completion(const Engine& engine, const std::string& why) {
  return "jobs on " + engine.id + " run to completion, but the plan preempts them (" + engine.preemption +
         "): responses can be longer than planned" + (why.empty() ? "" : "; " + why);
}

}  // namespace socsched
