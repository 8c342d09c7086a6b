// Criticality isolation: less critical jobs yield to more critical ones.
//
// A job does not start while a more critical one is ready or running anywhere, nor if it would probably still run at
// the next release of a more critical frame.  It waits for at most one period of its task.
#pragma once

#include <algorithm>
#include <vector>

#include "job.hpp"
#include "settings.hpp"
#include "wiring.hpp"

namespace socsched {

class Isolation {
 public:
  Isolation(const Wiring& wiring, const Sources& sources)
      : due_(static_cast<size_t>(sources.count()), -1), longest_(wiring.plan.tasks.size(), 0), sources_(due_.size()) {
    const Plan& plan = wiring.plan;
    int least = HARD;
    for (const Task& task : plan.tasks) least = std::min<int>(least, task.criticality);
    const auto add = [&](int provider, Ns period) {
      const int rank = highest(wiring, provider);
      if (rank > least) sources_[static_cast<size_t>(sources.of(provider))] = {rank, period};
    };
    for (const Sensor& sensor : plan.sensors) add(sensor.provider, sensor.period);
    for (const Task& task : plan.tasks)
      if (task.timer) add(task.provider, task.period);
  }

  // The next frame of a source is due a period after this one.
  void released(int source, Ns release) {
    const Source& from = sources_[static_cast<size_t>(source)];
    if (from.period) due_[static_cast<size_t>(source)] = release + from.period;
  }

  // Record an execution time; the recorded maximum shrinks by 1/32 with every shorter job.
  void ended(const Task& task, Ns exec) {
    Ns& longest = longest_[static_cast<size_t>(task.number)];
    longest = std::max(exec, longest - longest / 32);
  }

  // Whether a job must not start now; `first` is the highest criticality among ready and running jobs.
  bool holds_back(const Job& job, int first, Ns now) const {
    const Task& task = *job.task;
    if (now - job.activation >= task.period) return false;
    if (task.criticality < first) return true;
    const Ns end = now + longest_[static_cast<size_t>(task.number)];
    for (size_t i = 0; i < sources_.size(); i++)
      if (sources_[i].rank > task.criticality && due_[i] >= 0 && due_[i] < end && now < due_[i] + sources_[i].period)
        return true;  // it is due before this job would end, and not a whole period overdue
    return false;
  }

 private:
  struct Source {
    int rank = 0;
    Ns period = 0;  // 0: nothing more critical than the rest follows it
  };

  // The highest criticality among all successors of a source, including the source if it is a timer.
  static int highest(const Wiring& wiring, int provider) {
    std::vector<char> reached(wiring.followers.size(), 0);
    std::vector<int> open{provider};
    reached[static_cast<size_t>(provider)] = 1;
    int rank = 0;
    std::vector<std::vector<int>> behind(wiring.followers.size());
    for (const Task& task : wiring.plan.tasks) {
      for (const int name : task.after) behind[static_cast<size_t>(name)].push_back(task.number);
      if (task.provider == provider) rank = task.criticality;
    }
    while (!open.empty()) {
      const int name = open.back();
      open.pop_back();
      for (const int number : behind[static_cast<size_t>(name)]) {
        const Task& task = wiring.plan.tasks[static_cast<size_t>(number)];
        if (reached[static_cast<size_t>(task.provider)]) continue;
        reached[static_cast<size_t>(task.provider)] = 1;
        rank = std::max<int>(rank, task.criticality);
        open.push_back(task.provider);
      }
    }
    return rank;
  }

  std::vector<Ns> due_, longest_;
  std::vector<Source> sources_;
};

// Overload handling by policies that the user sets per stage (socsched/runtime/options.py has the format).

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
