// The fixed part of a running plan: which tasks follow which, which data each needs, and how long data are kept.
#pragma once

#include <string>
#include <vector>

#include "order.hpp"
#include "settings.hpp"

namespace socsched {

// The sources of frames of a run: the sensors and timers of all its plans, numbered.
class Sources {
 public:
  Sources(const std::vector<const Plan*>& plans, int names);
  int of(int provider) const { return provider < static_cast<int>(number_.size()) ? number_[static_cast<size_t>(provider)] : -1; }
  int provider(int source) const { return providers_[static_cast<size_t>(source)]; }
  int count() const { return static_cast<int>(providers_.size()); }

 private:
  std::vector<int> number_, providers_;
};

struct Wiring {
  // Failure for a policy without known terms, or for needs of unknown names.
  Wiring(const Plan& plan, const Settings& settings, const Names& names, int version);

  const Plan& plan;
  int version;                                 // number of the plan among those of the run
  std::vector<std::vector<int>> followers;     // by provider: the tasks that its data activate
  std::vector<int> timer;                      // by provider: the timer task of that name, -1 if it is none
  std::vector<char> sampled;                   // by provider: whether a task reads its latest data
  std::vector<std::vector<int>> needs, carry;  // by task: providers
  std::vector<Order> orders;                   // by task
  std::vector<OnOverload> overload;            // by task
  std::vector<char> preempts;                  // by engine: whether more urgent jobs preempt running ones
  std::vector<std::string> completes;          // by engine: why jobs run to completion against the plan, else empty
  std::vector<std::vector<std::vector<int>>> places;  // by task: the sets of lanes on which its jobs may run, its own first
  std::vector<Ns> unseen;                      // by task: the planned times of those that follow until its end is looked for
  int64_t disorder = 0;                        // frames by which a stage may deliver out of order
  std::vector<int> levels;                     // by task: how many jobs its lanes can hold, one suspended by the other
  int64_t apart;                               // frames by which one input of a join may be ahead of another
};

// Engines on which the plan preempts running jobs, and whether this executor does.

// How jobs of an engine are preempted; if they are not, against the plan, `why` says what is missing.
struct Preempting {
  bool preempts = false;
  std::string why;
};

Preempting preempting(const Plan& plan, const Engine& engine, const Settings& settings, const Order& order);

// Return the notice for an engine whose jobs run to completion although the plan preempts them.
std::string run_to_completion(const Engine& engine, const std::string& why);

}  // namespace socsched
