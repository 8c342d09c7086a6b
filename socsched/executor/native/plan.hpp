// A plan as the executor needs it, read from plan.json, with every name replaced by a number.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "json.hpp"

namespace socsched {

using Ns = int64_t;  // times are nanoseconds, from the start of the run unless stated otherwise
constexpr Ns MS = 1'000'000, NEVER = INT64_MAX;

constexpr Ns MOST_NS = int64_t{1} << 53;

// Numbers for the names of one run; the same name has the same number in every plan of the run.
class Names {
 public:
  int number(const std::string& name);            // a new number for a new name
  int find(const std::string& name) const;        // -1 if unknown
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

// Return the plan of a file; Failure with the position of what is wrong in it.  Its names are added to `names`.
Plan read_plan(const std::string& path, Names& names);

}  // namespace socsched
