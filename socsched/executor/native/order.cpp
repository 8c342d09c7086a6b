#include "order.hpp"

namespace socsched {

namespace {

int64_t value(Term term, const Task& task, Ns activation, Ns deadline) {
  switch (term) {
    case Term::nothing: return 0;
    case Term::priority: return task.priority;
    case Term::deadline: return deadline;
    case Term::activation: return activation;
    case Term::period: return task.period;
    case Term::relative_deadline: return task.deadline;
    case Term::criticality: return HARD - task.criticality;
    case Term::laxity: return deadline - task.cost;  // the time common to all waiting jobs does not change their order
    case Term::remaining:
    case Term::cost: return task.cost;
    case Term::best_effort: return task.criticality == SOFT;
    case Term::release: return deadline - task.deadline;
    case Term::newest: return -activation;
  }
  return 0;
}

}  // namespace

const std::vector<std::string>& term_names() {
  static const std::vector<std::string> names{
      "nothing", "priority", "deadline", "activation", "period", "relative_deadline",
      "criticality", "laxity", "remaining", "cost", "best_effort", "release", "newest"};
  return names;
}

Key Order::key(const Task& task, int64_t frame, Ns activation, Ns deadline) const {
  return {value(first, task, activation, deadline), value(second, task, activation, deadline), task.number, frame};
}

}  // namespace socsched
