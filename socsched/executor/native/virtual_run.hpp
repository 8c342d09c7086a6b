// A run on a virtual clock: jobs take exactly their planned (or listed) time, and decisions take none.
//
// It makes the same decisions as a run in real time, since `Control` makes them in both.  At every instant jobs end in
// the order of the tasks, then frames are released, then jobs are started once, then the monitor looks: the order of
// the simulator.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <vector>

#include "control.hpp"
#include "failure.hpp"
#include "journal.hpp"
#include "wiring.hpp"

namespace socsched {

constexpr Ns HANGS = -1;

struct End {
  Ns time;   // of a suspended job: what is left
  Ns works;  // when it has paid for its resumption
  int task;
  int64_t index;
  Job* job;
  bool fails;

  bool operator<(const End& other) const {  // the latest comes first in a heap's order
    return std::tie(time, task, index) > std::tie(other.time, other.task, other.index);
  }
};

class VirtualWorkers : public Workers {
 public:
  VirtualWorkers(const Control& control) : control_(control), begun_(static_cast<size_t>(control.names().count()), 0) {
    data_.resize(begun_.size());
  }

  // A listed time of -1 hangs, one below fails after that time.
  void submit(Job* job) override {
    const Task& task = *job->task;
    const auto listed = control_.settings().times.find(task.name);
    Ns time = task.cost;
    if (listed != control_.settings().times.end() && !listed->second.empty()) {
      int64_t& count = begun_[static_cast<size_t>(task.provider)];
      time = listed->second[static_cast<size_t>(count++) % listed->second.size()];
    }
    job->output = data(task.provider);
    retain(job->output);
    job->begun = now;
    if (time == HANGS) return;
    const Ns took = time < 0 ? -time : time;
    push({now + (job->cheap ? took / 2 : took), now, task.number, job->index, job, time < 0});
  }

  // A job that is suspended before it has paid for its resumption pays again.
  void suspend(Job* job) override {
    const auto place = std::find_if(ends_.begin(), ends_.end(), [job](const End& end) { return end.job == job; });
    if (place == ends_.end()) return;  // it hangs
    const Ns pays = std::max(place->works - now, Ns{0});
    waiting_.push_back({place->time - now - pays, 0, place->task, place->index, job, place->fails});
    ends_.erase(place);
    std::make_heap(ends_.begin(), ends_.end());
  }

  void resume(Job* job) override {
    const auto place = std::find_if(waiting_.begin(), waiting_.end(), [job](const End& end) { return end.job == job; });
    if (place == waiting_.end()) return;
    End end = *place;
    waiting_.erase(place);
    end.works = now + control_.plan(job->version).engines[static_cast<size_t>(job->task->engine)].switch_cost;
    end.time += end.works;
    push(end);
  }

  bool none() const { return ends_.empty(); }
  const End& first() const { return ends_.front(); }

  End pop() {
    std::pop_heap(ends_.begin(), ends_.end());
    const End end = ends_.back();
    ends_.pop_back();
    return end;
  }

  Data* data(int provider) { return &data_[static_cast<size_t>(provider)]; }

  Ns now = 0;

 private:
  void push(const End& end) {
    ends_.push_back(end);
    std::push_heap(ends_.begin(), ends_.end());
  }

  std::vector<End> ends_, waiting_;  // a heap, and suspended jobs
  const Control& control_;
  std::vector<int64_t> begun_;
  std::vector<Data> data_;
};

// Failure for a run that would take hours, as no clock limits it: too many frames, or jobs too long to be watched.
inline void require_few_events(const Control& control) {
  constexpr double MOST = 5e6, MOST_LOOKS = 1e7;
  double frames = 0;
  const Ns horizon = control.settings().horizon;
  for (const Sensor& sensor : control.plan().sensors) frames += static_cast<double>(horizon) / static_cast<double>(sensor.period);
  for (const Task& task : control.plan().tasks)
    if (task.timer) frames += static_cast<double>(horizon) / static_cast<double>(task.period);
  Ns longest = horizon;
  for (const Task& task : control.plan().tasks) longest = std::max(longest, task.cost);
  for (const auto& [task, times] : control.settings().times)
    for (const Ns time : times) longest = std::max(longest, std::abs(time));
  if (static_cast<double>(longest) / static_cast<double>(control.interval()) > MOST_LOOKS)
    throw Failure(USAGE, "a job or the horizon takes more than ten million times as long as between two looks at the run", "expected shorter times");
  if (frames > MOST) throw Failure(USAGE, "more than 5 million frames within the horizon", "run for a shorter time: --horizon-ns");
}

// Run until all frames released before the horizon are done; return the length of the run.
inline Ns run_virtually(Control& control, Journal& journal) {
  VirtualWorkers workers(control);
  control.set_workers(&workers);
  for (int version = 0; version < control.versions(); version++)
    for (const Engine& engine : control.plan(version).engines)
      if (engine.preemption == "segment" && control.wiring(version).preempts[static_cast<size_t>(&engine - control.plan(version).engines.data())])
        control.complete_jobs(version, engine, "on a virtual clock jobs have no segments");
  require_few_events(control);
  Timetable timetable(control.plan(), control.settings().horizon);
  const Ns interval = control.interval();
  Ns look = interval;
  int64_t events = 0;
  while (true) {
    const Ns release = control.over() || timetable.next() < 0 ? NEVER : timetable.next();
    const Ns end = workers.none() ? NEVER : workers.first().time;
    if (release == NEVER && end == NEVER && (control.over() || control.idle())) break;
    const Ns over = control.next_overrun();
    const Ns now = std::min({release, end, look, over});
    workers.now = now;
    while (!workers.none() && workers.first().time == now) {
      const End ended = workers.pop();
      if (ended.fails)
        control.failed(ended.job, ended.job->begun, now, "Failed: as scripted");
      else
        control.ended(ended.job, ended.job->begun, now);
    }
    if (control.next_overrun() == now) control.check_overruns(now);
    if (release == now && !control.over())
      timetable.take(now, [&](int provider, int64_t frame) { control.release(provider, frame, now, now, workers.data(provider)); });
    control.dispatch(now);
    if (look == now) {
      control.look(now);
      look += interval;
    }
    if (++events % 1024 == 0) journal.append();
  }
  const Ns duration = control.over() ? control.last_end() : std::max(control.last_end(), control.settings().horizon);
  control.settle(duration);
  journal.append();
  return duration;
}

}  // namespace socsched
