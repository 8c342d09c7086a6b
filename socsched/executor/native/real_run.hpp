// A run in real time: one worker thread for every set of lanes, frames released at absolute times, a monitor, a journal.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control.hpp"
#include "data_slots.hpp"
#include "detections.hpp"
#include "failure.hpp"
#include "feed.hpp"
#include "gate.hpp"
#include "journal.hpp"
#include "mailbox.hpp"
#include "stage.hpp"
#include "timetable.hpp"

namespace socsched {

class RealRun : public Workers {
 public:
  // Starts the workers, prepares all stages and warms them up; Failure if that fails.
  RealRun(Control& control, Journal& journal, Detections& detections);
  ~RealRun() override;

  // Release frames until the horizon and wait for the jobs in progress; return the length of the run.
  Ns run();

  Ns origin() const { return origin_; }  // the start of the run on the monotonic clock
  Ns processor() const { return processor_; }  // time of processors that all threads used from there on
  bool hung() const { return hung_; }  // whether a thread does not end
  const std::vector<std::string>& notices() const { return notices_; }

  // Called by `Control` with the guard held.
  void submit(Job* job) override;
  void suspend(Job* job) override { worker_for(*job)->gate.close(); }
  void resume(Job* job) override { worker_for(*job)->gate.open(); }

 private:
  // A thread of one set of lanes of one plan.  Lanes whose jobs are preempted have several, at rising priorities: a job
  // runs on the one above all that it suspends.
  struct Worker {
    int version = 0, level = 0, levels = 1, priority = 1;  // priority: under SCHED_FIFO, of the highest level
    Worker *base = this, *above = nullptr;            // the one of level 0, which owns the stages; that of the next level
    std::vector<const Task*> tasks;
    std::vector<int> processors, seats, rows;         // rows of the timetable whose frames its tasks receive first
    std::vector<std::pair<const Task*, std::unique_ptr<Stage>>> stages;
    Mailbox mailbox;
    Gate gate;
    std::thread thread;
    std::string problem, hint = "see the settings of the run", notice;
    Exit code = MACHINE;                              // for a problem
    std::atomic<bool> ready{false}, ended{false}, claims{false};

    Stage& stage(const Task& task) const;
  };

  static constexpr size_t MOST_POSTINGS = 64;  // at a time; more take another turn

  // A job on its way to its worker.
  struct Posting {
    Worker* worker = nullptr;
    Job* job = nullptr;
  };

  void make_slots();
  void lend_places();
  Data* frame_data(int provider, int64_t frame);
  void hold_frame(const Job& job);
  void warm_up();
  void warm_frame(int version, bool all_levels, std::vector<Data*>& held);
  void warm_job(Worker& worker, Job& job);
  Worker* worker_for(const Job& job) const;
  void note_version();
  void open_gates(int but_of);
  bool computes(int version, const Task& task) const;
  void execute_warm(Worker& worker, const Job& job);
  void note_detections(const Task& task, int version, int64_t frame, Data* outputs);
  void arrive(int provider, const Feed::Frame& frame);
  bool feeds_ready(Ns instant) const;
  bool feeds_ended() const;
  void release_frame(int provider, int64_t frame, Ns nominal, Ns now);
  void dismiss();
  void hire();
  Worker& worker_on(int version, const std::vector<int>& seats);
  void make_levels();
  std::string completion_cause(int version, const Engine& engine) const;
  void work(Worker& worker);
  void prepare(Worker& worker);
  void execute(Worker& worker, Job* job);
  void show(Stage& stage, const Job& job, std::string& error, Progress& progress);
  void inject(const Worker& worker, const Task& task, std::string& error);
  void prolong(const Worker& worker, const Task& task, Ns start);
  Ns alarm(const Worker& worker) const;
  bool lanes_free(const Worker& worker) const;
  void release_due(Worker* worker);                   // null: called by the release thread
  void release_more(Ns time);
  bool frames_left();
  void announce_releases();
  void release_loop();
  bool claimed(Ns instant) const;
  Ns following(Ns next) const;
  void monitor_loop();
  void journal_loop();
  void post(size_t count, const Posting* postings, const Worker* own, bool quietly);
  size_t collect(Posting* postings);                  // take the jobs submitted under the guard
  void expect_followers(const Task& task, int version, Ns from, bool quietly);
  void wind_down();
  Ns now() const { return monotonic_ns() - origin_; }

  Control& control_;
  Journal& journal_;
  const bool live_;                                   // frames are released as they arrive
  Detections& detections_;
  Guard guard_;
  Timetable timetable_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::vector<std::vector<Worker*>>> worker_of_;  // by version, task and place
  std::vector<Job*> submissions_;
  size_t submission_count_ = 0;
  std::vector<Data> data_;                            // by provider, for those without tensors
  std::vector<std::vector<std::unique_ptr<DataSlots>>> slots_;  // by version and task
  std::vector<std::unique_ptr<SensorFrames>> frames_; // by provider
  std::vector<std::unique_ptr<Feed>> feeds_;          // by provider, where frames come during the run
  std::vector<int64_t> arrived_;                      // by provider: frames of a live feed
  std::mutex preparing_;                              // stages of one task on several workers share their slots
  std::vector<std::vector<char>> computes_;           // by version and task: whether its stage handles tensors
  std::vector<std::vector<int>> leaders_;             // by version and task: the number of the data whose frame it follows, -1: none
  std::vector<std::vector<int>> recorded_;            // by version and task: its number in `detections_`, -1: none
  std::vector<std::atomic<Ns>> next_release_;         // by row of the timetable; monotonic
  std::vector<std::atomic<bool>> busy_;               // by seat; hints for threads without the guard
  std::vector<std::atomic<Ns>> shortest_;             // by provider: a recent short execution time of a task
  std::vector<std::atomic<bool>> spent_;              // injected failures
  std::vector<std::atomic<int64_t>> begun_jobs_;      // of the stages that are prolonged, by prolonging
  std::vector<std::string> notices_;
  std::string class_ = "off";
  Ns origin_ = 0, awake_ = 0, processor_ = 0;
  std::atomic<int> version_{0};
  std::atomic<bool> over_{false}, stop_{false}, warming_{true}, warmed_{false}, releasing_{false}, begun_{false};
  std::string warm_error_;
  bool hung_ = false, started_ = false;
};

}  // namespace socsched
