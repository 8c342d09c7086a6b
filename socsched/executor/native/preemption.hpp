// Engines whose running jobs the plan preempts, and whether this executor does.
#pragma once

#include <string>

#include "plan.hpp"

namespace socsched {

// Whether a plan preempts jobs of an engine: it has preemption, and two of its tasks share a lane.
bool preempts(const Plan& plan, const Engine& engine);

// Return the notice for an engine whose jobs run to completion although the plan preempts them; `why` may be empty.
std::string run_to_completion(const Engine& engine, const std::string& why);

}  // namespace socsched
