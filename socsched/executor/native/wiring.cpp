#include "wiring.hpp"

#include <algorithm>
#include <climits>
#include <set>

#include "failure.hpp"
#include "preemption.hpp"

namespace socsched {

Sources::Sources(const std::vector<const Plan*>& plans, int names) : number_(static_cast<size_t>(names), -1) {
  const auto add = [this](int provider) {
    int& number = number_[static_cast<size_t>(provider)];
    if (number >= 0) return;
    number = count();
    providers_.push_back(provider);
  };
  for (const Plan* plan : plans) {
    for (const Sensor& sensor : plan->sensors) add(sensor.provider);
    for (const Task& task : plan->tasks)
      if (task.timer) add(task.provider);
  }
}

namespace {

// As in the simulator: the number of frames that can wait in all queues, within limits.
int64_t frames_apart(const Plan& plan) {
  constexpr int64_t MOST = 1024, LEAST = 64;
  int64_t joins = 0, waiting = 0;
  for (const Task& task : plan.tasks) {
    joins += task.after.size() > 1;
    waiting += std::min(task.queue, MOST) + 2;
  }
  return std::max(std::min({waiting, MOST, (int64_t{1} << 22) / std::max(joins, int64_t{1})}), LEAST);
}

}  // namespace

Wiring::Wiring(const Plan& plan, const Settings& settings, const Names& names, int version)
    : plan(plan), version(version), followers(static_cast<size_t>(names.count())), timer(followers.size(), -1), sampled(followers.size()), apart(frames_apart(plan)) {
  std::vector<std::set<int>> needed(plan.tasks.size()), carried(plan.tasks.size());
  for (const Engine& engine : plan.engines) {
    const auto order = settings.orders.find(engine.policy);
    const Preempting found = preempting(plan, engine, settings, order == settings.orders.end() ? Order() : order->second);
    preempts.push_back(found.preempts);
    completes.push_back(found.why);
  }
  levels.assign(plan.tasks.size(), INT_MAX);
  for (const Task& task : plan.tasks) {
    const std::string& policy = plan.engines[static_cast<size_t>(task.engine)].policy;
    const auto order = settings.orders.find(policy);
    if (order == settings.orders.end())
      throw Failure(USAGE, "policy '" + policy + "' has no order in the settings of the run", "plan again with edf, fp or fifo");
    orders.push_back(order->second);
    const auto rule = settings.overload.find(task.name);
    overload.push_back(rule == settings.overload.end() ? OnOverload::none : rule->second);
    if (task.timer) timer[static_cast<size_t>(task.provider)] = task.number;
    else
      for (const int provider : task.after) followers[static_cast<size_t>(provider)].push_back(task.number);
    for (const int provider : task.reads) sampled[static_cast<size_t>(provider)] = 1;
    const auto wanted = settings.needs.find(task.name);
    if (wanted == settings.needs.end()) continue;
    for (const std::string& name : wanted->second) {
      const int provider = names.find(name);
      if (provider < 0) throw Failure(USAGE, "the settings of the run: " + task.name + " needs " + name + ", which the plan lacks");
      needed[static_cast<size_t>(task.number)].insert(provider);
    }
  }
  // What a task hands on is what any task behind it still reads; `reads` may close a cycle, so iterate to the fixed point.
  std::vector<std::vector<int>> behind(static_cast<size_t>(names.count()));
  for (const Task& task : plan.tasks)
    for (const std::vector<int>* providers : {&task.after, &task.reads})
      for (const int provider : *providers) behind[static_cast<size_t>(provider)].push_back(task.number);
  for (bool changed = true; changed;) {
    changed = false;
    for (const Task& task : plan.tasks) {
      std::set<int>& mine = carried[static_cast<size_t>(task.number)];
      const size_t before = mine.size();
      for (const int follower : behind[static_cast<size_t>(task.provider)]) {
        const std::set<int>&theirs = needed[static_cast<size_t>(follower)], &further = carried[static_cast<size_t>(follower)];
        mine.insert(theirs.begin(), theirs.end());
        if (follower != task.number) mine.insert(further.begin(), further.end());
      }
      changed |= mine.size() != before;
    }
  }
  for (const std::set<int>& one : needed) needs.emplace_back(one.begin(), one.end());
  for (const std::set<int>& one : carried) carry.emplace_back(one.begin(), one.end());
}

}  // namespace socsched
