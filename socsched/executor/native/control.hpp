// The plan in charge, its dispatcher, and what happens when a stage fails or hangs.
//
// One thread at a time.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "dispatcher.hpp"

namespace socsched {

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
  Control(const Settings& settings, Names& names);

  // -- events; times since the start of the run

  void release(int provider, int64_t frame, Ns nominal, Ns now, Data* data);
  void lose(int provider, int64_t frame, Ns nominal, const std::string& why);  // a frame that cannot be used
  void dispatch(Ns now);                             // start every job that can start
  void ended(Job* job, Ns start, Ns end);            // without effect for a job that was abandoned
  void failed(Job* job, Ns start, Ns end, const std::string& error);
  void look(Ns now);                                 // sample running jobs and queues: overruns, hangs, growth
  // Let the jobs of an engine run to completion against the plan, with a notice that says why; before the first release.
  void complete_jobs(int version, const Engine& engine, const std::string& why);
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
  void settle(Ns duration);

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
  bool levels() const;                                     // whether any plan has levels of criticality
  Ns next_overrun() const { return current().next_overrun(); }
  void check_overruns(Ns now) { dispatchers_[static_cast<size_t>(version_)]->check_overruns(now); }
  Ns interval() const;                                     // between two calls of `look`
  Ns last_end() const { return last_end_; }                // the end of the last job so far
  Ring& ring() { return *ring_; }

 private:
  struct Growth {
    Ns since = -1;
    std::array<int64_t, 4> depths{};
    size_t count = 0;
  };

  Ns hang_limit(const Task& task) const;
  void hung(Job* job, Ns now, Ns lasted);
  void watch(Job* job, Ns now);
  void grown(const Task& task, int64_t depth, Ns now);
  int replacement(const Task& task, int version) const;  // a plan without any lost lane, -1 if there is none
  void lose(const std::vector<int>& seats, const Task& task, int version);
  void take_over(int version, Ns now);
  void strand(int version, const Task* task, Ns now);
  int64_t keep(const std::string& message);

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

}  // namespace socsched
