#include "preemption.hpp"

namespace socsched {

namespace {

bool share_lanes(const Plan& plan, const Engine& engine) {
  std::vector<char> used(static_cast<size_t>(engine.lanes), 0);
  for (const Task& task : plan.tasks) {
    if (&plan.engines[static_cast<size_t>(task.engine)] != &engine) continue;
    for (const int lane : task.lanes)
      if (used[static_cast<size_t>(lane)]++) return true;
  }
  return false;
}

}  // namespace

Preempting preempting(const Plan& plan, const Engine& engine, const Settings& settings, const Order& order) {
  const auto found = settings.preemption.find(engine.policy);
  const Preemption how = found == settings.preemption.end() ? Preemption::as_engine : found->second;
  if (how == Preemption::never || !share_lanes(plan, engine)) return {};
  if (how == Preemption::mechanism) return {false, "policy " + engine.policy + " preempts by a mechanism of its own"};
  if (engine.preemption == "none") return {};
  if (engine.preemption != "full" && engine.preemption != "segment") return {false, "the executor cannot restart jobs"};
  if (!order.constant()) return {false, "policy " + engine.policy + " orders jobs by their progress"};
  return {true, ""};
}

std::string run_to_completion(const Engine& engine, const std::string& why) {
  return "jobs on " + engine.id + " run to completion, but the plan preempts them" +
         (engine.preemption == "none" ? "" : " (" + engine.preemption + ")") + ": responses can be longer than planned; " + why;
}

}  // namespace socsched
