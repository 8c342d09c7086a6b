// Engines on which the plan preempts running jobs, and whether this executor does.
#pragma once

#include <string>

#include "settings.hpp"

namespace socsched {

// How jobs of an engine are preempted; if they are not, against the plan, `why` says what is missing.
struct Preempting {
  bool preempts = false;
  std::string why;
};

Preempting preempting(const Plan& plan, const Engine& engine, const Settings& settings, const Order& order);

// Return the notice for an engine whose jobs run to completion although the plan preempts them.
std::string run_to_completion(const Engine& engine, const std::string& why);

}  // namespace socsched
