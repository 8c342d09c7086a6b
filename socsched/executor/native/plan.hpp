// A plan as the executor needs it, read from plan.json, with every name replaced by a number.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "failure.hpp"
#include "json.hpp"

namespace socsched {

constexpr size_t MOST_ENGINES = 1024, MOST_PLANNED = 20'000, MOST_NAME = 200;
constexpr int64_t MOST_LANES = 1024, MOST_SEATS = 4096, MOST_COUNT = int64_t{1} << 53;

inline std::string name_of(const JsonField& field) {
  const std::string& name = field.text(MOST_NAME);
  if (name.empty()) field.fail("expected a name");
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x21 || static_cast<unsigned char>(c) > 0x7E) field.fail("expected a name without blanks");
  return name;
}

using Ns = int64_t;  // times are nanoseconds, from the start of the run unless stated otherwise
constexpr Ns MS = 1'000'000, NEVER = INT64_MAX;
constexpr Ns MOST_NS = int64_t{1} << 53;

// Numbers for the names of one run; the same name has the same number in every plan of the run.
class Names {
 public:
  // A new number for a new name.
  int number(const std::string& name) {
    const auto [place, fresh] = numbers_.emplace(name, count());
    if (fresh) texts_.push_back(name);
    return place->second;
  }

  // -1 if unknown.
  int find(const std::string& name) const {
    const auto place = numbers_.find(name);
    return place == numbers_.end() ? -1 : place->second;
  }

  const std::string& text(int number) const { return texts_[static_cast<size_t>(number)]; }
  int count() const { return static_cast<int>(texts_.size()); }

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string, int> numbers_;
};

enum Criticality { SOFT = 0, FIRM = 1, HARD = 2 };

struct Engine {
  std::string id, kind, policy, preemption;
  int lanes = 0;
  Ns switch_cost = 0;  // paid by a job that resumes
  int seat0 = 0;  // the number of its first lane among the lanes of all engines
};

struct Sensor {
  std::string name;
  int provider = -1;
  Ns period = 0, offset = 0;
};

struct Task {
  std::string name;
  int number = 0;         // position in the plan
  int provider = -1;      // number of its name
  int engine = 0;
  std::vector<int> lanes;
  std::vector<int> seats;  // its lanes as seat numbers
  std::vector<int> after, reads;  // providers
  bool timer = false;
  bool drops_oldest = false;
  Ns period = 0, offset = 0, deadline = 0, wcet = 0, cost = 0;
  Ns high = 0;            // its time at the high level of criticality, which begins beyond `wcet`; 0: it has one time
  int64_t queue = 0, priority = 0;
  Criticality criticality = SOFT;
  int replaces = -1;      // for a conversion, the provider whose data it converts
};

struct Plan {
  std::vector<Engine> engines;
  std::vector<Sensor> sensors;
  std::vector<Task> tasks;
  int seats = 0;
};

// The order in which ready jobs are served: two terms of `sim.policies.Term`, then the order of the tasks.
using Key = std::array<int64_t, 4>;  // two terms, number of the task, frame; the smallest is served first

// Terms that are constant while a job waits; those of a running job may change (`Order::constant`).
enum class Term { nothing, priority, deadline, activation, period, relative_deadline, criticality, laxity, remaining, cost, best_effort, release, newest };

// The names of the terms in the settings of a run, in the order of `Term`.
inline const std::vector<std::string>& term_names() {
  static const std::vector<std::string> names{
      "nothing", "priority", "deadline", "activation", "period", "relative_deadline",
      "criticality", "laxity", "remaining", "cost", "best_effort", "release", "newest"};
  return names;
}

inline int64_t value(Term term, const Task& task, Ns activation, Ns deadline) {
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

struct Order {
  Term first = Term::deadline, second = Term::activation;

  // Whether a job's key stays the same while it runs.
  bool constant() const {
    const auto changes = [](Term term) { return term == Term::laxity || term == Term::remaining; };
    return !changes(first) && !changes(second);
  }

  Key key(const Task& task, int64_t frame, Ns activation, Ns deadline) const {
    return {value(first, task, activation, deadline), value(second, task, activation, deadline), task.number, frame};
  }
};

inline Engine read_engine(const JsonField& from, int seat0) {
  Engine engine;
  engine.id = name_of(from["id"]);
  engine.kind = name_of(from["kind"]);
  engine.policy = from["policy"].text(4000);
  engine.preemption = from["preemption"].one_of({"full", "segment", "none", "restart"});
  engine.switch_cost = from["switch_ns"].integer(0, MOST_NS);
  engine.lanes = static_cast<int>(from["lanes"].integer(1, MOST_LANES));
  engine.seat0 = seat0;
  return engine;
}

// The execution time of a job that runs undisturbed.
inline Ns cost_of(const JsonField& from) {
  Ns sum = 0;
  const std::vector<JsonField> segments = from["segments"].items(1'000'000);
  for (const JsonField& segment : segments) {
    sum += segment["time_ns"].integer(0, MOST_NS);
    if (sum > MOST_NS) segment.fail("expected at most 2**53 ns for all segments together");
  }
  const Ns cost = from["cost_ns"].integer(0, MOST_NS);
  return segments.empty() ? cost : sum;
}

inline Task read_task(const JsonField& from, const Plan& plan, Names& names) {
  Task task;
  task.name = name_of(from["name"]);
  task.provider = names.number(task.name);
  const std::string engine = name_of(from["engine"]);
  const auto place = std::find_if(plan.engines.begin(), plan.engines.end(), [&](const Engine& e) { return e.id == engine; });
  if (place == plan.engines.end()) from["engine"].fail("expected one of the plan's engines");
  task.engine = static_cast<int>(place - plan.engines.begin());
  for (const JsonField& lane : from["lanes"].items(MOST_LANES)) {
    task.lanes.push_back(static_cast<int>(lane.integer(0, place->lanes - 1)));
    task.seats.push_back(place->seat0 + task.lanes.back());
    if (std::count(task.lanes.begin(), task.lanes.end(), task.lanes.back()) > 1) lane.fail("expected each lane once");
  }
  if (task.lanes.empty()) from["lanes"].fail("expected at least one lane");
  for (const std::string& name : from["after"].texts(MOST_PLANNED, MOST_NAME)) task.after.push_back(names.find(name));
  for (const std::string& name : from["reads"].texts(MOST_PLANNED, MOST_NAME)) task.reads.push_back(names.find(name));
  task.timer = from["timer"].boolean();
  task.period = from["period_ns"].integer(1, MOST_NS);
  task.offset = from["offset_ns"].integer(0, MOST_NS);
  task.deadline = from["deadline_ns"].integer(-MOST_NS, MOST_NS);
  task.wcet = from["wcet_ns"].integer(0, MOST_NS);
  task.cost = cost_of(from);
  task.queue = from["queue"].integer(0, MOST_COUNT);
  task.drops_oldest = from.has("overflow") && from["overflow"].one_of({"newest", "oldest"}) == "oldest";
  task.priority = from["priority"].integer(0, MOST_COUNT);
  const std::string criticality = from["criticality"].one_of({"soft", "firm", "hard"});
  task.criticality = criticality == "hard" ? HARD : criticality == "firm" ? FIRM : SOFT;
  if (from.has("width") && from["width"].integer(0, MOST_LANES) > 0)
    from["width"].fail("expected 0: jobs that take any of several lanes are not supported by the native executor");
  if (from.has("high_ns")) task.high = from["high_ns"].integer(0, MOST_NS);
  if (from.has("closed_by") && !from["closed_by"].text(MOST_NAME).empty())
    from["closed_by"].fail("expected no task: closed loops are not supported by the native executor");
  return task;
}

// Check references to names that may be defined further down in the file.
inline void check_references(const JsonField& tasks, const Plan& plan, const Names& names) {
  std::set<int> known;
  for (const Sensor& sensor : plan.sensors) known.insert(sensor.provider);
  for (const Task& task : plan.tasks)
    if (!known.insert(task.provider).second) tasks.fail("the name " + task.name + " is there twice");
  const std::vector<JsonField> entries = tasks.items(MOST_PLANNED);
  for (size_t i = 0; i < entries.size(); i++)
    for (const char* const field : {"after", "reads"}) {
      std::set<std::string> seen;
      for (const JsonField& entry : entries[i][field].items(MOST_PLANNED)) {
        const std::string& name = entry.text(MOST_NAME);
        if (!known.count(names.find(name))) entry.fail("expected the name of a task or sensor");
        if (!seen.insert(name).second) entry.fail("expected each name once");
      }
    }
  for (size_t i = 0; i < entries.size(); i++)
    if (!plan.tasks[i].timer && plan.tasks[i].after.empty())
      entries[i].fail("expected a timer, or the names of the tasks or sensors it follows in after");
}

// Fail for tasks that wait for each other.
inline void check_cycles(const JsonField& tasks, const Plan& plan) {
  std::unordered_map<int, const Task*> task_of;
  for (const Task& task : plan.tasks) task_of[task.provider] = &task;
  std::vector<int> open(plan.tasks.size(), 0);
  std::unordered_map<int, std::vector<int>> followers;
  std::vector<int> ready;
  for (const Task& task : plan.tasks) {
    for (const int provider : task.timer ? std::vector<int>() : task.after)
      if (task_of.count(provider)) {
        open[static_cast<size_t>(task.number)]++;
        followers[provider].push_back(task.number);
      }
    if (open[static_cast<size_t>(task.number)] == 0) ready.push_back(task.number);
  }
  size_t seen = 0;
  while (seen < ready.size()) {
    const Task& task = plan.tasks[static_cast<size_t>(ready[seen++])];
    for (const int follower : followers[task.provider])
      if (--open[static_cast<size_t>(follower)] == 0) ready.push_back(follower);
  }
  if (seen < plan.tasks.size()) tasks.fail("expected an acyclic graph, but some tasks wait for each other");
}

inline void read_transitions(const JsonField& root, Plan& plan, const Names& names) {
  std::unordered_map<std::string, Task*> tasks;
  for (Task& task : plan.tasks) tasks[task.name] = &task;
  for (const JsonField& entry : root["transitions"].items(MOST_PLANNED))
    if (const auto found = tasks.find(entry["task"].text(MOST_NAME)); found != tasks.end())
      found->second->replaces = names.find(entry["source"].text(MOST_NAME));
}

// Return the plan of a file; Failure with the position of what is wrong in it.  Its names are added to `names`.
inline Plan read_plan(const std::string& path, Names& names) {
  const JsonFile file(path);
  const JsonField root = file.root();
  root["schema_version"].one_of({"1"});
  Plan plan;
  for (const JsonField& entry : root["engines"].items(MOST_ENGINES)) {
    plan.engines.push_back(read_engine(entry, plan.seats));
    plan.seats += plan.engines.back().lanes;
    if (plan.seats > MOST_SEATS) entry.fail("expected at most 4,096 lanes on all engines together");
  }
  std::set<std::string> sensors;
  for (const JsonField& entry : root["sensors"].items(MOST_PLANNED)) {
    Sensor sensor;
    sensor.name = name_of(entry["name"]);
    sensor.period = entry["period_ns"].integer(1, MOST_NS);
    sensor.offset = entry["offset_ns"].integer(0, MOST_NS);
    sensor.provider = names.number(sensor.name);
    if (!sensors.insert(sensor.name).second) entry["name"].fail("expected each name once");
    plan.sensors.push_back(sensor);
  }
  const JsonField tasks = root["tasks"];
  for (const JsonField& entry : tasks.items(MOST_PLANNED)) names.number(name_of(entry["name"]));  // before references to them
  for (const JsonField& entry : tasks.items(MOST_PLANNED)) {
    plan.tasks.push_back(read_task(entry, plan, names));
    plan.tasks.back().number = static_cast<int>(plan.tasks.size()) - 1;
  }
  if (plan.tasks.empty()) tasks.fail("expected at least one task");
  check_references(tasks, plan, names);
  check_cycles(tasks, plan);
  read_transitions(root, plan, names);
  return plan;
}

}  // namespace socsched
