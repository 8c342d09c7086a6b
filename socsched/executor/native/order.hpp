// The order in which ready jobs are served: two terms of `sim.policies.Term`, then the order of the tasks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan.hpp"

namespace socsched {

using Key = std::array<int64_t, 4>;  // two terms, number of the task, frame; the smallest is served first

// Terms that are constant while a job waits; those of a running job may change (`Order::constant`).
enum class Term { nothing, priority, deadline, activation, period, relative_deadline, criticality, laxity, remaining, cost, best_effort, release, newest };

// The names of the terms in the settings of a run, in the order of `Term`.
const std::vector<std::string>& term_names();

struct Order {
  Term first = Term::deadline, second = Term::activation;

  // Whether a job's key stays the same while it runs.
  bool constant() const {
    const auto changes = [](Term term) { return term == Term::laxity || term == Term::remaining; };
    return !changes(first) && !changes(second);
  }

  Key key(const Task& task, int64_t frame, Ns activation, Ns deadline) const;
};

}  // namespace socsched
