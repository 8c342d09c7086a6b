// Overload handling by policies that the user sets per stage (socsched/runtime/options.py has the format).
#pragma once

#include "settings.hpp"

namespace socsched {

class Overload {
 public:
  explicit Overload(const Settings& settings)
      : any_(!settings.overload.empty() || settings.shed_below), below_(settings.shed_below), shed_(settings.shed) {}

  bool any() const { return any_; }

  // What happens to a job that starts with `slack` left to its deadline: none, skip or degrade.
  static OnOverload choose(OnOverload rule, const Task& task, Ns slack) {
    return rule == OnOverload::abort || slack >= task.wcet ? OnOverload::none : rule;
  }

  // Record a missed deadline; return true if shedding begins with it.
  bool missed(const Task& task, Ns now) {
    if (!below_ || task.criticality < below_) return false;
    const bool began = now >= until_;
    until_ = now + shed_;
    return began;
  }

  bool sheds(const Task& task, Ns now) const { return now < until_ && task.criticality < below_; }

 private:
  bool any_;
  int below_;
  Ns shed_, until_ = -1;
};

}  // namespace socsched
