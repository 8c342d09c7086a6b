// The plan in charge, its dispatcher, and what happens when a stage fails or hangs.
//
// One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "dispatcher.hpp"
#include "failure.hpp"
#include "wiring.hpp"

namespace socsched {

constexpr Ns PATIENCE = 10'000 * MS;
constexpr size_t MOST_QUEUE = 4096, MOST_JOBS = 1 << 18, RING_WORDS = size_t{1} << 20, MOST_TASKS = 40'000;

// The memory for all jobs that can exist at once: those waiting in full queues, running, and arriving in one instant.
inline Store::Size size_of(const std::vector<std::unique_ptr<Wiring>>& wirings, int sources, size_t data, const Settings& settings) {
  Store::Size size;
  size.sources = static_cast<size_t>(sources);
  size.data = data;
  for (const auto& wiring : wirings) {
    const Plan* const plan = &wiring->plan;
    size_t jobs = 64, joins = 1;
    for (const Task& task : plan->tasks) {
      jobs += std::min(static_cast<size_t>(std::max(task.queue, int64_t{settings.in_flight})), MOST_QUEUE) + 4;
      joins += !task.timer && task.after.size() > 1 ? static_cast<size_t>(wiring->apart) : 0;
      size.reads = std::max(size.reads, task.reads.size());
    }
    size.jobs = std::max(size.jobs, std::min(jobs, MOST_JOBS));
    size.joins = std::max(size.joins, joins);
    size.seats = std::max({size.seats, static_cast<size_t>(plan->seats), static_cast<size_t>(settings.threads)});
  }
  return size;
}

// Whatever executes jobs: threads, or a virtual clock.
class Workers {
 public:
  virtual ~Workers() = default;
  virtual void submit(Job* job) = 0;  // begin a job; its end is reported to `Control`
  virtual void suspend(Job*) {}       // a more urgent job takes its lanes
  virtual void resume(Job*) {}
};

class Control {
 public:
  // Reads the plans that the settings name; Failure if one cannot be run.
  Control(const Settings& settings, Names& names) : settings_(settings), names_(names) {
    plans_.push_back(std::make_unique<Plan>(read_plan(settings.plan, names)));
    for (const std::string& path : settings.limp_home) plans_.push_back(std::make_unique<Plan>(read_plan(path, names)));
    size_t tasks = 0;
    for (const auto& plan : plans_)
      if ((tasks += plan->tasks.size()) > MOST_TASKS) throw Failure(USAGE, "the plans have more than 40,000 tasks together", "use fewer limp-home plans");
    std::vector<const Plan*> plans;
    for (const auto& plan : plans_) plans.push_back(plan.get());
    sources_ = std::make_unique<Sources>(plans, names.count());
    size_t data = 0;
    data_number_.assign(static_cast<size_t>(names.count()), -1);
    for (const Plan* plan : plans) {
      wirings_.push_back(std::make_unique<Wiring>(*plan, settings, names, static_cast<int>(wirings_.size())));
      for (const std::vector<std::vector<int>>* lists : {&wirings_.back()->needs, &wirings_.back()->carry})
        for (const std::vector<int>& list : *lists)
          for (const int provider : list)
            if (data_number_[static_cast<size_t>(provider)] < 0) data_number_[static_cast<size_t>(provider)] = static_cast<int>(data++);
    }
    for (const auto& wiring : wirings_)
      for (size_t i = 0; i < wiring->plan.engines.size(); i++)
        if (!wiring->completes[i].empty()) notices_.push_back(run_to_completion(wiring->plan.engines[i], wiring->completes[i]));
    const Store::Size size = size_of(wirings_, sources_->count(), data, settings);
    store_ = std::make_unique<Store>(size);
    ledger_ = std::make_unique<Ledger>(sources_->count(), size.jobs + size.joins * size.sources + 16);
    ring_ = std::make_unique<Ring>(RING_WORDS);
    depths_.assign(static_cast<size_t>(names.count()), -1);
    for (const auto& wiring : wirings_)
      dispatchers_.push_back(std::make_unique<Dispatcher>(*wiring, Books{settings, *sources_, *ledger_, *store_, *ring_, data_number_, depths_}));
    been_in_charge_.assign(plans_.size(), 0);
    been_in_charge_[0] = 1;
    started_.resize(size.seats + 1);
    size_t started = size.seats + 1;  // a lane has at most one running job, a task at most one that is suspended
    for (const auto& plan : plans_) started = std::max(started, size.seats + plan->tasks.size() + 1);
    looked_.reserve(started);
    growth_.resize(static_cast<size_t>(names.count()));
    overruns_.resize(growth_.size());
  }

  // -- events; times since the start of the run

  void release(int provider, int64_t frame, Ns nominal, Ns now, Data* data) {
    Dispatcher& dispatcher = *dispatchers_[static_cast<size_t>(version_)];
    for (const Dropout& dropout : settings_.dropouts)
      if (dropout.provider == provider && dropout.from <= nominal && nominal < dropout.until)
        return dispatcher.lose(provider, frame, nominal, Text::lost_dropout);
    dispatcher.release(provider, frame, nominal, now, data);
  }

  // A frame that cannot be used.
  void lose(int provider, int64_t frame, Ns nominal, const std::string& why) {
    dispatchers_[static_cast<size_t>(version_)]->lose(provider, frame, nominal, Text::failed, keep(why));
  }

  // Start every job that can start.
  void dispatch(Ns now) {
    if (halted_) return;
    Dispatcher& dispatcher = *dispatchers_[static_cast<size_t>(version_)];
    const size_t count = dispatcher.pick(now, started_.data());
    running_ += static_cast<int64_t>(count);
    for (Job* const job : dispatcher.suspended()) workers_->suspend(job);
    for (Job* const job : dispatcher.resumed()) workers_->resume(job);
    for (size_t i = 0; i < count; i++) workers_->submit(started_[i]);
    dispatcher.tidy(now);
  }

  // Without effect for a job that was abandoned.
  void ended(Job* job, Ns start, Ns end) {
    if (job->abandoned) return;
    running_--;
    last_end_ = std::max(last_end_, end);
    dispatchers_[static_cast<size_t>(job->version)]->ended(job, start, end);
  }

  void failed(Job* job, Ns start, Ns end, const std::string& error) {
    if (job->abandoned) return;
    running_--;
    last_end_ = std::max(last_end_, end);
    Dispatcher& dispatcher = *dispatchers_[static_cast<size_t>(job->version)];
    const Task& task = *job->task;
    const int64_t frame = job->frame, message = keep(error);
    const int version = job->version, other = replacement(task, version);
    const std::vector<int>& seats = dispatcher.seats(*job);
    if (other >= 0) {
      dispatcher.abandon(job, start, end, Dispatcher::Abandon::aborted, Text::failed, message);
      lose(seats, task, version);
      take_over(other, end);
      ring_->instant({end, Kind::fault, task.provider, frame, Text::failed_replaced, message, task.engine, version});
      return;
    }
    if (!failed_) {
      failed_ = true;
      failure_ = error;
      failed_task_ = task.provider;
      failed_frame_ = frame;
    }
    halted_ = true;
    dispatcher.abandon(job, start, end, Dispatcher::Abandon::unfinished);
  }

  // Sample running jobs and queues: overruns, hangs, growth.
  void look(Ns now) {
    looked_.clear();
    for (Job* job = current().running().first; job; job = job->next) looked_.push_back(job);
    const Dispatcher& dispatcher = current();
    for (Job* const job : looked_)
      if (!job->is_void) watch(job, now);
    for (const Task& task : dispatcher.wiring().plan.tasks) grown(task, dispatcher.waiting(task), now);
    if (settings_.shield) dispatch(now);  // a job may have been held back long enough
  }

  // Let the jobs of an engine run to completion against the plan, with a notice that says why; before the first release.
  void complete_jobs(int version, const Engine& engine, const std::string& why) {
    const Wiring& wiring = *wirings_[static_cast<size_t>(version)];
    wirings_[static_cast<size_t>(version)]->preempts[static_cast<size_t>(&engine - wiring.plan.engines.data())] = 0;
    notices_.push_back(run_to_completion(engine, why));
  }

  void limit_levels(int version, const Task& task, int count) { wirings_[static_cast<size_t>(version)]->levels[static_cast<size_t>(task.number)] = count; }
  void begin_group() { ledger_->begin_group(); }
  void interrupt() { interrupted_ = true; }

  // -- the run

  void set_workers(Workers* workers) { workers_ = workers; }
  bool over() const { return failed_ || interrupted_; }  // no more frames are released
  void halt() { halted_ = true; }                        // no more jobs are started
  bool idle() const { return current().outstanding() == 0; }
  int64_t running() const { return running_; }           // jobs that were begun and have not ended
  // Book what is left after the last job has ended; `duration`: the length of the run.
  void settle(Ns duration) {
    if (failed_)
      ring_->instant({duration, Kind::fault, failed_task_, failed_frame_, Text::failed, keep(failure_)});
    else if (interrupted_)
      ring_->instant({duration, Kind::fault, -1, -1, Text::interrupted});
    for (const auto& dispatcher : dispatchers_) dispatcher->settle();
    ledger_->settle();
  }

  const Settings& settings() const { return settings_; }
  const Names& names() const { return names_; }
  const Plan& plan() const { return *plans_[0]; }
  const Plan& plan(int version) const { return *plans_[static_cast<size_t>(version)]; }
  const Wiring& wiring(int version) const { return *wirings_[static_cast<size_t>(version)]; }
  int version() const { return version_; }  // of the plan in charge
  bool lost_lanes() const { return !lost_.empty(); }
  int versions() const { return static_cast<int>(plans_.size()); }
  // Number of a provider's data in `Frame::data`, -1 if no task needs them.
  int data_number(int provider) const { return provider < 0 ? -1 : data_number_[static_cast<size_t>(provider)]; }
  const Store::Size& sizes() const { return store_->size(); }
  const Sources& sources() const { return *sources_; }
  const Ledger& ledger() const { return *ledger_; }
  const Dispatcher& current() const { return *dispatchers_[static_cast<size_t>(version_)]; }
  const std::string& message(int64_t number) const { return messages_[static_cast<size_t>(number)]; }
  bool interrupted() const { return interrupted_; }
  const std::vector<std::string>& notices() const { return notices_; }  // what the user should know about the plans
  const std::string& failure() const { return failure_; }  // empty if no stage failed for good
  std::string failed_stage() const { return failed_task_ < 0 ? "" : names_.text(failed_task_); }
  int64_t failed_frame() const { return failed_frame_; }

  // Whether any plan has levels of criticality.
  bool levels() const {
    for (const auto& plan : plans_)
      for (const Task& task : plan->tasks)
        if (task.high) return true;
    return false;
  }

  Ns next_overrun() const { return current().next_overrun(); }
  void check_overruns(Ns now) { dispatchers_[static_cast<size_t>(version_)]->check_overruns(now); }

  // Between two calls of `look`.
  Ns interval() const {
    Ns shortest = 100 * MS;
    if (!plan().tasks.empty()) shortest = plan().tasks[0].period;
    for (const Task& task : plan().tasks) shortest = std::min(shortest, task.period);
    return std::min(std::max(shortest / 16, MS), 20 * MS);
  }

  Ns last_end() const { return last_end_; }                // the end of the last job so far
  Ring& ring() { return *ring_; }

 private:
  struct Growth {
    Ns since = -1;
    std::array<int64_t, 4> depths{};
    size_t count = 0;
  };

  // The time after which a running job counts as hanging, which with another plan at hand is less than a period.
  Ns hang_limit(const Task& task) const {
    if (settings_.hang) return settings_.hang;
    if (plans_.size() > 1) return std::max(task.period * 7 / 8, task.wcet * 5 / 4);
    return std::max({10 * task.period, 10 * task.wcet, PATIENCE});
  }

  void hung(Job* job, Ns now, Ns lasted) {
    if (job->abandoned) return;
    running_--;
    last_end_ = std::max(last_end_, now);
    const Task& task = *job->task;
    const int version = job->version, other = replacement(task, version);
    const int64_t frame = job->frame;
    Dispatcher& dispatcher = *dispatchers_[static_cast<size_t>(version)];
    const std::vector<int>& seats = dispatcher.seats(*job);
    dispatcher.abandon(job, __atomic_load_n(&job->begun, __ATOMIC_ACQUIRE), now, Dispatcher::Abandon::aborted, Text::hangs,
                       task.provider, lasted, task.wcet);
    lose(seats, task, version);
    strand(version, &task, now);
    if (other >= 0) {
      take_over(other, now);
      ring_->instant({now, Kind::fault, task.provider, frame, Text::hangs_replaced, version << 20 | task.number, lasted, task.wcet});
    } else {
      dispatcher.retire(seats, now);
      ring_->instant({now, Kind::fault, task.provider, frame, Text::hangs_alone, task.provider, lasted, task.wcet});
    }
    dispatch(now);
  }

  void watch(Job* job, Ns now) {
    const Ns begun = __atomic_load_n(&job->begun, __ATOMIC_ACQUIRE);
    if (begun < 0) return;
    const Task& task = *job->task;
    const Ns lasted = job->executed(begun, now);
    if (!job->suspended && lasted > hang_limit(task)) return hung(job, now, lasted);
    const Ns unseen = wirings_[static_cast<size_t>(job->version)]->unseen[static_cast<size_t>(task.number)];
    if (lasted > task.wcet + unseen && !job->seen_overrun) {
      job->seen_overrun = true;
      int64_t& count = overruns_[static_cast<size_t>(task.provider)];
      if (count++ == 0) ring_->counter(OVERRUNS, task.provider, 0, 0.0);
      ring_->counter(OVERRUNS, task.provider, now, static_cast<double>(count));
    }
    if (now > job->deadline + unseen && !job->seen_late) {
      job->seen_late = true;
      ring_->instant({now, Kind::late, task.provider, job->frame, Text::still_running});
    }
  }

  // Report a queue that was deeper at the end of each of three periods than at the end of the one before.
  void grown(const Task& task, int64_t depth, Ns now) {
    Growth& seen = growth_[static_cast<size_t>(task.provider)];
    if (seen.since < 0) {
      seen.since = now;
      seen.depths[seen.count++] = depth;
    }
    if (now - seen.since < task.period) return;
    seen.since = now;
    if (seen.count == seen.depths.size()) {
      std::rotate(seen.depths.begin(), seen.depths.begin() + 1, seen.depths.end());
      seen.count--;
    }
    seen.depths[seen.count++] = depth;
    if (seen.count < seen.depths.size()) return;
    for (size_t i = 1; i < seen.depths.size(); i++)
      if (seen.depths[i - 1] >= seen.depths[i]) return;
    ring_->instant({now, Kind::overload, task.provider, -1, Text::grew, seen.depths[0], seen.depths[3], 3});
  }

  // A plan without any lost lane, -1 if there is none.
  int replacement(const Task& task, int version) const {
    std::vector<std::pair<std::string, int>> lost = lost_;
    const std::string& engine = plan(version).engines[static_cast<size_t>(task.engine)].id;
    for (const int lane : task.lanes) lost.emplace_back(engine, lane);
    for (int other = 1; other < versions(); other++) {
      if (been_in_charge_[static_cast<size_t>(other)]) continue;
      bool usable = true;
      for (const Task& used : plan(other).tasks)
        for (const int lane : used.lanes)
          for (const auto& [name, number] : lost)
            usable &= number != lane || name != plan(other).engines[static_cast<size_t>(used.engine)].id;
      if (usable) return other;
    }
    return -1;
  }

  void lose(const std::vector<int>& seats, const Task& task, int version) {
    if (settings_.places != Places::equal)  // a thread of a baseline is no lane
      for (const int lane : task.lanes) lost_.emplace_back(plan(version).engines[static_cast<size_t>(task.engine)].id, lane);
    else
      for (const Engine& engine : plan(version).engines)
        for (const int seat : seats)
          if (engine.seat0 <= seat && seat < engine.seat0 + engine.lanes) lost_.emplace_back(engine.id, seat - engine.seat0);
  }

  void take_over(int version, Ns now) {
    Dispatcher& old = *dispatchers_[static_cast<size_t>(version_)];
    strand(version_, nullptr, now);
    old.close(now);
    version_ = version;
    been_in_charge_[static_cast<size_t>(version)] = 1;
    dispatchers_[static_cast<size_t>(version)]->inherit(old);
  }

  // Abort the suspended jobs below a hanging one, or, without `task`, all of a plan that is replaced: nothing resumes them.
  void strand(int version, const Task* task, Ns now) {
    Dispatcher& dispatcher = *dispatchers_[static_cast<size_t>(version)];
    for (Job *job = dispatcher.running().first, *next = nullptr; job; job = next) {
      next = job->next;
      const auto shared = [&](int seat) { return std::count(task->seats.begin(), task->seats.end(), seat) > 0; };
      if (!job->suspended || (task && std::none_of(job->task->seats.begin(), job->task->seats.end(), shared))) continue;
      running_--;
      const Ns begun = __atomic_load_n(&job->begun, __ATOMIC_ACQUIRE);
      if (task)
        dispatcher.abandon(job, begun, now, Dispatcher::Abandon::aborted, Text::out_of_service, job->task->engine, version);
      else
        dispatcher.abandon(job, begun, now, Dispatcher::Abandon::aborted, Text::replaced_running);
    }
  }

  int64_t keep(const std::string& message) {
    const int64_t number = std::min(message_count_, static_cast<int64_t>(messages_.size()) - 1);
    if (message_count_ < static_cast<int64_t>(messages_.size())) messages_[static_cast<size_t>(message_count_++)] = message;
    return number;
  }

  const Settings& settings_;
  Names& names_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<std::unique_ptr<Wiring>> wirings_;
  std::vector<std::unique_ptr<Dispatcher>> dispatchers_;
  std::unique_ptr<Sources> sources_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Ring> ring_;
  std::vector<int> data_number_;
  Workers* workers_ = nullptr;
  int version_ = 0;
  int64_t running_ = 0, message_count_ = 0;
  bool failed_ = false, interrupted_ = false, halted_ = false;
  std::string failure_;
  int failed_task_ = -1;
  int64_t failed_frame_ = -1;
  Ns last_end_ = 0;
  std::vector<std::pair<std::string, int>> lost_;  // engine and lane
  std::vector<char> been_in_charge_;
  std::vector<Job*> started_, looked_;
  std::vector<Growth> growth_;
  std::vector<int64_t> overruns_, depths_;
  std::array<std::string, 64> messages_;
  std::vector<std::string> notices_;
};

// -- events

// -- hangs and losses

}  // namespace socsched
