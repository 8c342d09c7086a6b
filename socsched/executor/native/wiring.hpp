// The fixed part of a running plan: which tasks follow which, which data each needs, and how long data are kept.
#pragma once

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "failure.hpp"
#include "plan.hpp"
#include "settings.hpp"

namespace socsched {

// Release times of sensors and timers: absolute, so that lateness does not accumulate.
class Timetable {
 public:
  struct Row {
    int provider;
    Ns offset, period;
    int64_t frame = 0;  // the next one
    Ns next() const { return offset + frame * period; }
  };

  // Sensors first, then timers, in the order of the plan.
  Timetable(const Plan& plan, Ns horizon) : horizon_(horizon) {
    for (const Sensor& sensor : plan.sensors) rows_.push_back({sensor.provider, sensor.offset, sensor.period});
    for (const Task& task : plan.tasks)
      if (task.timer) rows_.push_back({task.provider, task.offset, task.period});
  }

  // The instant of the next release, -1 if there are none before the horizon.
  Ns next() const {
    Ns first = horizon_;
    for (const Row& row : rows_) first = std::min(first, row.next());
    return first < horizon_ ? first : -1;
  }

  // Call `release(provider, frame)` for every release of an instant, and go on to the next.
  template <class Release>
  void take(Ns instant, Release release) {
    for (Row& row : rows_)
      if (row.next() == instant) release(row.provider, row.frame++);
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  Ns horizon_;
  std::vector<Row> rows_;
};

constexpr int64_t MOST_DISORDER = 64;

// As in the simulator: the number of frames that can wait in all queues, within limits.
inline int64_t frames_apart(const Plan& plan) {
  constexpr int64_t MOST = 1024, LEAST = 64;
  int64_t joins = 0, waiting = 0;
  for (const Task& task : plan.tasks) {
    joins += task.after.size() > 1;
    waiting += std::min(task.queue, MOST) + 2;
  }
  return std::max(std::min({waiting, MOST, (int64_t{1} << 22) / std::max(joins, int64_t{1})}), LEAST);
}

// Rows of bits, one of `width` bits for each of `count` tasks.
class Bits {
 public:
  Bits(size_t count, size_t width) : words_((width + 63) / 64), bits_(count * words_) {}

  void set(size_t row, size_t bit) { bits_[row * words_ + bit / 64] |= uint64_t{1} << bit % 64; }
  void add(size_t row, const Bits& other, size_t from) {
    for (size_t i = 0; i < words_; i++) bits_[row * words_ + i] |= other.bits_[from * words_ + i];
  }
  void copy(size_t row, size_t from) { std::copy_n(bits_.begin() + offset(from), words_, bits_.begin() + offset(row)); }
  size_t words() const { return words_; }
  uint64_t word(size_t row, size_t i) const { return bits_[row * words_ + i]; }

 private:
  std::ptrdiff_t offset(size_t row) const { return static_cast<std::ptrdiff_t>(row * words_); }

  size_t words_;
  std::vector<uint64_t> bits_;
};

// Groups of tasks that reach each other, each after all groups that it reaches (Tarjan's algorithm, without recursion).
inline std::vector<std::vector<int>> groups_of(const std::vector<std::vector<int>>& next) {
  std::vector<std::vector<int>> groups;
  std::vector<int> order(next.size(), -1), low(next.size()), open;
  std::vector<char> is_open(next.size());
  std::vector<std::pair<int, size_t>> path;
  int count = 0;
  for (size_t start = 0; start < next.size(); start++) {
    if (order[start] >= 0) continue;
    path.emplace_back(static_cast<int>(start), 0);
    while (!path.empty()) {
      const size_t at = static_cast<size_t>(path.back().first);
      if (path.back().second == 0) {
        order[at] = low[at] = count++;
        open.push_back(static_cast<int>(at));
        is_open[at] = 1;
      }
      if (path.back().second < next[at].size()) {
        const size_t to = static_cast<size_t>(next[at][path.back().second++]);
        if (order[to] < 0) path.emplace_back(static_cast<int>(to), 0);
        else if (is_open[to]) low[at] = std::min(low[at], order[to]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[static_cast<size_t>(path.back().first)] = std::min(low[static_cast<size_t>(path.back().first)], low[at]);
      if (low[at] != order[at]) continue;
      std::vector<int>& group = groups.emplace_back();
      do {
        group.push_back(open.back());
        is_open[static_cast<size_t>(open.back())] = 0;
        open.pop_back();
      } while (group.back() != static_cast<int>(at));
    }
  }
  return groups;
}

// What every task hands on: the data that it has or receives and that any task behind it still needs.
inline std::vector<std::vector<int>> carried(const Plan& plan, const std::vector<std::vector<int>>& needs, int names) {
  constexpr size_t MOST_CARRIED = size_t{1} << 26;
  std::vector<int> number(static_cast<size_t>(names), -1), wanted;  // of the data that are needed at all
  for (const std::vector<int>& list : needs)
    for (const int provider : list)
      if (int& found = number[static_cast<size_t>(provider)]; found < 0) {
        found = static_cast<int>(wanted.size());
        wanted.push_back(provider);
      }
  std::vector<std::vector<int>> tasks_of(static_cast<size_t>(names)), behind(plan.tasks.size());
  for (const Task& task : plan.tasks) tasks_of[static_cast<size_t>(task.provider)].push_back(task.number);
  const size_t count = plan.tasks.size();
  Bits later(count, wanted.size()), present(count, wanted.size());
  const auto mark = [&](Bits& bits, size_t task, int provider) {
    if (const int bit = number[static_cast<size_t>(provider)]; bit >= 0) bits.set(task, static_cast<size_t>(bit));
  };
  for (const Task& task : plan.tasks) {
    const size_t at = static_cast<size_t>(task.number);
    mark(present, at, task.provider);
    if (task.replaces >= 0) mark(present, at, task.replaces);
    for (const std::vector<int>* providers : {&task.after, &task.reads})
      for (const int provider : *providers) {
        mark(present, at, provider);
        for (const int before : tasks_of[static_cast<size_t>(provider)]) {
          behind[static_cast<size_t>(before)].push_back(task.number);
          for (const int need : needs[at]) mark(later, static_cast<size_t>(before), need);
        }
      }
  }
  const std::vector<std::vector<int>> groups = groups_of(behind);  // `reads` may close a cycle, in which all is behind all
  const auto spread = [&](Bits& bits, const std::vector<int>& group) {
    for (const int task : group) bits.add(static_cast<size_t>(group[0]), bits, static_cast<size_t>(task));
    for (const int task : group) bits.copy(static_cast<size_t>(task), static_cast<size_t>(group[0]));
  };
  for (const std::vector<int>& group : groups) {
    for (const int task : group)
      for (const int follower : behind[static_cast<size_t>(task)]) later.add(static_cast<size_t>(task), later, static_cast<size_t>(follower));
    spread(later, group);
  }
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    spread(present, *group);
    for (const int task : *group)
      for (const int follower : behind[static_cast<size_t>(task)]) present.add(static_cast<size_t>(follower), present, static_cast<size_t>(task));
  }
  std::vector<std::vector<int>> lists(count);
  size_t total = 0;
  for (size_t task = 0; task < count; task++) {
    for (size_t i = 0; i < later.words(); i++)
      for (uint64_t word = later.word(task, i) & present.word(task, i); word; word &= word - 1)
        lists[task].push_back(wanted[i * 64 + static_cast<size_t>(__builtin_ctzll(word))]);
    std::sort(lists[task].begin(), lists[task].end());
    if ((total += lists[task].size()) > MOST_CARRIED)
      throw Failure(USAGE, "the plan is too large for the native executor: its tasks hand on too many data", "use fewer tasks");
  }
  return lists;
}

inline bool overlap(const std::vector<int>& some, const std::vector<int>& others) {
  return std::any_of(some.begin(), some.end(), [&](int seat) { return std::count(others.begin(), others.end(), seat) > 0; });
}

// The sets of lanes on which jobs of a task may run, its own first; a thread of its own is a lane, too.
inline std::vector<std::vector<int>> places_of(const Task& task, const Plan& plan, const Settings& settings, const std::vector<char>& preempts) {
  std::vector<std::vector<int>> places;
  if (settings.places == Places::any_thread || settings.places == Places::thread_of_frame) {
    for (int thread = 0; thread < settings.threads; thread++) places.push_back({thread});
    return places;
  }
  places.push_back(task.seats);
  if (settings.places == Places::planned || preempts[static_cast<size_t>(task.engine)]) return places;
  const Engine& own = plan.engines[static_cast<size_t>(task.engine)];
  for (const Task& other : plan.tasks) {
    const Engine& engine = plan.engines[static_cast<size_t>(other.engine)];
    const bool equal = own.id == engine.id || std::any_of(settings.equal_engines.begin(), settings.equal_engines.end(), [&](const std::vector<std::string>& names) {
      return std::count(names.begin(), names.end(), own.id) && std::count(names.begin(), names.end(), engine.id);
    });
    if (other.seats.size() != task.seats.size() || preempts[static_cast<size_t>(other.engine)] || !equal) continue;
    if (!overlap(other.seats, task.seats) && std::find(places.begin(), places.end(), other.seats) == places.end()) places.push_back(other.seats);
  }
  return places;
}

// By task: the planned times of the stages of its graph that follow until one whose end is looked for.
inline std::vector<Ns> unseen_times(const Plan& plan, const Settings& settings, int version) {
  std::vector<Ns> unseen(plan.tasks.size());
  std::map<std::string, const Task*> named;
  for (const Task& task : plan.tasks) named[task.name] = &task;
  for (const Task& task : plan.tasks) {
    const StageSettings& first = settings.stage(version, task.name);
    Ns later = 0;
    for (size_t i = first.followers.size(); i-- > 0;) {
      const auto& [name, how] = first.followers[i];
      const Task* const follower = named.at(name);
      unseen[static_cast<size_t>(follower->number)] = later = how.shown ? 0 : later;
      later += follower->wcet;
    }
    if (!first.shown) unseen[static_cast<size_t>(task.number)] = later;
  }
  return unseen;
}

inline bool share_lanes(const Plan& plan, const Engine& engine) {
  std::vector<char> used(static_cast<size_t>(engine.lanes), 0);
  for (const Task& task : plan.tasks) {
    if (&plan.engines[static_cast<size_t>(task.engine)] != &engine) continue;
    for (const int lane : task.lanes)
      if (used[static_cast<size_t>(lane)]++) return true;
  }
  return false;
}

// The sources of frames of a run: the sensors and timers of all its plans, numbered.
class Sources {
 public:
  Sources(const std::vector<const Plan*>& plans, int names) : number_(static_cast<size_t>(names), -1) {
    const auto add = [this](int provider) {
      int& number = number_[static_cast<size_t>(provider)];
      if (number >= 0) return;
      number = count();
      providers_.push_back(provider);
    };
    for (const Plan* plan : plans) {
      for (const Sensor& sensor : plan->sensors) add(sensor.provider);
      for (const Task& task : plan->tasks)
        if (task.timer) add(task.provider);
    }
  }

  int of(int provider) const { return provider < static_cast<int>(number_.size()) ? number_[static_cast<size_t>(provider)] : -1; }
  int provider(int source) const { return providers_[static_cast<size_t>(source)]; }
  int count() const { return static_cast<int>(providers_.size()); }

 private:
  std::vector<int> number_, providers_;
};

// How jobs of an engine are preempted; if they are not, against the plan, `why` says what is missing.
struct Preempting {
  bool preempts = false;
  std::string why;
};

inline Preempting preempting(const Plan& plan, const Engine& engine, const Settings& settings, const Order& order) {
  const auto found = settings.preemption.find(engine.policy);
  const Preemption how = found == settings.preemption.end() ? Preemption::as_engine : found->second;
  if (how == Preemption::never || !share_lanes(plan, engine)) return {};
  if (how == Preemption::mechanism) return {false, "policy " + engine.policy + " preempts by a mechanism of its own"};
  if (engine.preemption == "none") return {};
  if (engine.preemption != "full" && engine.preemption != "segment") return {false, "the executor cannot restart jobs"};
  if (!order.constant()) return {false, "policy " + engine.policy + " orders jobs by their progress"};
  return {true, ""};
}

struct Wiring {
  // Failure for a policy without known terms, or for needs of unknown names.
  Wiring(const Plan& plan, const Settings& settings, const Names& names, int version)
      : plan(plan), version(version), followers(static_cast<size_t>(names.count())), timer(followers.size(), -1), sampled(followers.size()), apart(frames_apart(plan)) {
    std::vector<std::set<int>> needed(plan.tasks.size());
    for (const Engine& engine : plan.engines) {
      const auto order = settings.orders.find(engine.policy);
      const Preempting found = preempting(plan, engine, settings, order == settings.orders.end() ? Order() : order->second);
      preempts.push_back(found.preempts);
      completes.push_back(found.why);
    }
    levels.assign(plan.tasks.size(), INT_MAX);
    for (const Task& task : plan.tasks) places.push_back(places_of(task, plan, settings, preempts));
    if (settings.places != Places::planned) disorder = MOST_DISORDER;
    for (const Task& task : plan.tasks) {
      const std::string& policy = plan.engines[static_cast<size_t>(task.engine)].policy;
      const auto order = settings.orders.find(policy);
      if (order == settings.orders.end())
        throw Failure(USAGE, "policy '" + policy + "' has no order in the settings of the run", "plan again with edf, fp or fifo");
      orders.push_back(order->second);
      const auto rule = settings.overload.find(task.name);
      overload.push_back(rule == settings.overload.end() ? OnOverload::none : rule->second);
      if (task.timer) timer[static_cast<size_t>(task.provider)] = task.number;
      else
        for (const int provider : task.after) followers[static_cast<size_t>(provider)].push_back(task.number);
      for (const int provider : task.reads) sampled[static_cast<size_t>(provider)] = 1;
      const auto wanted = settings.needs.find(task.name);
      if (wanted == settings.needs.end()) continue;
      for (const std::string& name : wanted->second) {
        const int provider = names.find(name);
        if (provider < 0) throw Failure(USAGE, "the settings of the run: " + task.name + " needs " + name + ", which the plan lacks");
        needed[static_cast<size_t>(task.number)].insert(provider);
      }
    }
    for (const std::set<int>& one : needed) needs.emplace_back(one.begin(), one.end());
    carry = carried(plan, needs, names.count());
    unseen = unseen_times(plan, settings, version);
  }

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

// Return the notice for an engine whose jobs run to completion although the plan preempts them.
inline std::string run_to_completion(const Engine& engine, const std::string& why) {
  return "jobs on " + engine.id + " run to completion, but the plan preempts them" +
         (engine.preemption == "none" ? "" : " (" + engine.preemption + ")") + ": responses can be longer than planned; " + why;
}

}  // namespace socsched
