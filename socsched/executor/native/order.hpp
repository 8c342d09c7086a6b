// The order in which ready jobs are served: two terms of `sim.policies.Term`, then the order of the tasks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan.hpp"

namespace socsched {

using Key = std::array<int64_t, 4>;  // two terms, number of the task, frame; the smallest is served first

// Terms that are constant while a job waits, which is all that an executor without preemption needs.
enum class Term { nothing, priority, deadline, activation, period, relative_deadline, criticality, laxity, remaining, cost, best_effort };

// The names of the terms in the settings of a run, in the order of `Term`.
const std::vector<std::string>& term_names();

struct Order {
  Term first = Term::deadline, second = Term::activation;

  Key key(const Task& task, int64_t frame, Ns activation, Ns deadline) const;
};

}  // namespace socsched
