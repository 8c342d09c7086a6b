#include "real_run.hpp"

#include <algorithm>
#include <csignal>
#include <mutex>
#include <pthread.h>

#include "failure.hpp"
#include "realtime.hpp"
#include "supervisor.hpp"

namespace socsched {

namespace {

constexpr Ns AWAKE = 300'000;     // how long it then stays awake, if the workers own their processors
constexpr Ns MONITOR = 4 * MS;   // at least between looks at the running jobs, unless a look is urgent
constexpr Ns JOURNAL = 250 * MS;
constexpr size_t MOST_LEVELS = 64;  // of real-time priorities for the jobs of a lane

volatile std::sig_atomic_t interrupted = 0;

extern "C" void note_signal(int) { interrupted = 1; }

}  // namespace

Stage& RealRun::Worker::stage(const Task& task) const {
  size_t i = 0;
  while (base->stages[i].first != &task) i++;
  return *base->stages[i].second;
}

RealRun::RealRun(Control& control, Journal& journal, Detections& detections)
    : control_(control),
      journal_(journal),
      live_(control.settings().is_live()),
      detections_(detections),
      timetable_(control.plan(), live_ ? 0 : control.settings().horizon),
      data_(static_cast<size_t>(control.names().count())),
      next_release_(timetable_.rows().size()),
      shortest_(data_.size()),
      spent_(control.settings().failures.size()),
      begun_jobs_(control.settings().prolongings.size()) {
  control.set_workers(this);
  const size_t seats = control.sizes().seats;
  submissions_.resize(seats + 1);
  busy_ = std::vector<std::atomic<bool>>(seats);
  keep_memory();
  make_slots();
  hire();
  try {
    lend_places();
    warm_up();
  } catch (...) {
    dismiss();
    throw;
  }
  warming_ = false;
}

RealRun::~RealRun() {
  feeds_.clear();
  for (const auto& worker : workers_) worker->mailbox.stop();
  for (const auto& worker : workers_)
    if (worker->thread.joinable()) {
      if (hung_ && !worker->ended)
        worker->thread.detach();
      else
        worker->thread.join();
    }
}

// The worker of a set of lanes of a plan, made when it is first asked for.
RealRun::Worker& RealRun::worker_on(int version, const std::vector<int>& seats) {
  for (const auto& known : workers_)
    if (known->version == version && known->seats == seats) return *known;
  Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
  worker.version = version;
  worker.seats = seats;
  const Settings& settings = control_.settings();
  if (settings.places == Places::any_thread || settings.places == Places::thread_of_frame) return worker;
  for (const Engine& engine : control_.plan(version).engines)
    if (const auto processors = settings.processors.find(engine.id); processors != settings.processors.end())
      for (const int seat : seats)
        if (const int lane = seat - engine.seat0; 0 <= lane && lane < std::min(engine.lanes, static_cast<int>(processors->second.size())))
          if (const int processor = processors->second[static_cast<size_t>(lane)]; processor >= 0) worker.processors.push_back(processor);
  return worker;
}

// Start one worker for every set of lanes of every plan, and wait until all stages are prepared.
void RealRun::hire() {
  const Settings& settings = control_.settings();
  for (int version = 0; version < control_.versions(); version++) {
    const Plan& plan = control_.plan(version);
    worker_of_.emplace_back(plan.tasks.size());
    recorded_.emplace_back(plan.tasks.size(), -1);
    for (const Task& task : plan.tasks) {
      const StageSettings& stage = settings.stage(version, task.name);
      DataSlots& slots = *slots_[static_cast<size_t>(version)][static_cast<size_t>(task.number)];
      if (stage.records) recorded_.back()[static_cast<size_t>(task.number)] = static_cast<int>(detections_.add(task.name));
      const auto& places = control_.wiring(version).places[static_cast<size_t>(task.number)];
      for (size_t place = 0; place < places.size(); place++) {
        Worker& worker = worker_on(version, places[place]);
        worker.tasks.push_back(&task);
        worker.stages.emplace_back(&task, make_stage({task, stage, control_, slots}, place));
        worker_of_.back()[static_cast<size_t>(task.number)].push_back(&worker);
        if (place > 0) continue;
        for (size_t row = 0; row < timetable_.rows().size(); row++) {
          const int provider = timetable_.rows()[row].provider;
          const bool first = task.timer ? task.provider == provider : task.after.size() == 1 && task.after[0] == provider;
          if (first) worker.rows.push_back(static_cast<int>(row));
        }
      }
    }
  }
  std::vector<int> used;
  for (const auto& worker : workers_) used.insert(used.end(), worker->processors.begin(), worker->processors.end());
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  std::string notice;
  class_ = choose_class(settings.realtime, used.size(), notice);
  if (!notice.empty()) notices_.push_back(notice);
  make_levels();
  notices_.insert(notices_.end(), control_.notices().begin(), control_.notices().end());
  awake_ = settings.awake >= 0 ? settings.awake : class_ == "off" ? 0 : AWAKE;
  for (const auto& worker : workers_) {
    Worker* const own = worker.get();
    own->thread = std::thread([this, own] { work(*own); });
  }
  for (const auto& worker : workers_) {
    while (!worker->ready) sleep_until(monotonic_ns() + MS);
    if (!worker->notice.empty()) notices_.push_back("a worker is " + worker->notice);
  }
  for (const auto& worker : workers_)
    if (!worker->problem.empty()) {
      dismiss();
      throw Failure(worker->code, worker->problem, worker->hint);
    }
}

// Return why the jobs of an engine cannot be preempted in real time, empty if they can.
std::string RealRun::completion_cause(int version, const Engine& engine) const {
  bool on_device = true, stops = false;
  std::string needs_fifo;
  std::vector<int> lanes, processors;
  for (const Task& task : control_.plan(version).tasks) {
    if (&control_.plan(version).engines[static_cast<size_t>(task.engine)] != &engine) continue;
    const StageSettings& stage = control_.settings().stage(version, task.name);
    if (!stage.takes_any_thread()) return "the stage of " + task.name + " is bound to a thread";
    on_device &= stage.kind == "cuda";
    stops |= stage.stops_between_kernels();
    if (stage.kind == "spin" || stage.kind == "call") needs_fifo = task.name;
    lanes.insert(lanes.end(), task.lanes.begin(), task.lanes.end());
  }
  if (on_device) return stops ? "" : "its stages are not divided into pieces";
  if (class_ != "fifo" && (!needs_fifo.empty() || !stops)) return "preemption needs --realtime fifo, and permission for it";
  std::sort(lanes.begin(), lanes.end());
  lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
  const auto known = control_.settings().processors.find(engine.id);
  for (const int lane : lanes) {
    if (known == control_.settings().processors.end() || static_cast<size_t>(lane) >= known->second.size()) return "its lanes have no processors";
    processors.push_back(known->second[static_cast<size_t>(lane)]);
    if (processors.back() < 0) return "its lanes have no processors";
  }
  std::sort(processors.begin(), processors.end());
  if (std::adjacent_find(processors.begin(), processors.end()) != processors.end()) return "its lanes share processors";
  return "";
}

// Give lanes whose jobs are preempted a worker for every job that they can hold.  Where a job can take several lanes,
// levels are the engine's: a job is above all that it suspends on any of them.
void RealRun::make_levels() {
  for (int version = 0; version < control_.versions(); version++)
    for (size_t i = 0; i < control_.plan(version).engines.size(); i++) {
      if (!control_.wiring(version).preempts[i]) continue;
      const Engine& engine = control_.plan(version).engines[i];
      if (const std::string why = completion_cause(version, engine); !why.empty()) control_.complete_jobs(version, engine, why);
    }
  const size_t bases = workers_.size();
  for (size_t i = 0; i < bases; i++) workers_[i]->priority = fifo_priority(workers_[i]->tasks, control_.plan(workers_[i]->version));
  for (size_t i = 0; i < bases; i++) {
    Worker* const base = workers_[i].get();
    const int engine = base->tasks[0]->engine;
    if (!control_.wiring(base->version).preempts[static_cast<size_t>(engine)]) continue;
    size_t tasks = base->tasks.size(), all = 0;
    int priority = 0;
    bool wide = false;
    for (size_t k = 0; k < bases; k++) {
      if (workers_[k]->version != base->version || workers_[k]->tasks[0]->engine != engine) continue;
      wide |= workers_[k]->seats.size() > 1;
      all += workers_[k]->tasks.size();
      priority = std::max(priority, fifo_priority(workers_[k]->tasks, control_.plan(base->version)));
    }
    if (wide) {
      tasks = all;
      base->priority = priority;
    }
    base->levels = static_cast<int>(std::min(tasks, MOST_LEVELS));
    for (const Task* const task : base->tasks) control_.limit_levels(base->version, *task, base->levels);
    for (Worker* below = base; below->level + 1 < base->levels; below = below->above) {
      Worker* const worker = below->above = workers_.emplace_back(std::make_unique<Worker>()).get();
      worker->version = base->version;
      worker->level = below->level + 1;
      worker->levels = base->levels;
      worker->priority = base->priority;
      worker->base = base;
      worker->tasks = base->tasks;
      worker->seats = base->seats;
      worker->processors = base->processors;
      if (worker->level == 1) worker->rows = base->rows;  // it releases frames while a job of the base runs
    }
  }
}

void RealRun::dismiss() {
  for (const auto& worker : workers_) worker->mailbox.stop();
  for (const auto& worker : workers_)
    if (worker->thread.joinable()) worker->thread.join();
}

void RealRun::monitor_loop() {
  pthread_setname_np(pthread_self(), "monitor");
  const Settings& settings = control_.settings();
  const bool urgent = settings.shield || settings.hang > 0 || control_.versions() > 1 || control_.levels();  // times of the order of a period
  const Ns interval = urgent ? control_.interval() : std::max(control_.interval(), MONITOR);
  Ns next = monotonic_ns() + interval, told = 0;
  while (!stop_) {
    sleep_until(next);
    if (const Ns time = monotonic_ns(); time - told >= 1000 * MS) {
      told = time;
      tell_supervisor("WATCHDOG=1");
    }
    next = std::max(next + interval, monotonic_ns());
    Posting postings[MOST_POSTINGS];
    size_t count;
    bool first = true;
    do {
      std::lock_guard<Guard> lock(guard_);
      if (interrupted) control_.interrupt();
      if (first) control_.look(now());
      if (first && control_.levels()) {
        control_.check_overruns(now());
        control_.dispatch(now());
      }
      first = false;
      note_version();
      count = collect(postings);
    } while (post(count, postings, nullptr, false), count == MOST_POSTINGS);
  }
}

void RealRun::journal_loop() {
  pthread_setname_np(pthread_self(), "journal");
  while (!stop_) {
    journal_.append();
    detections_.append();
    for (Ns until = monotonic_ns() + JOURNAL; monotonic_ns() < until && !stop_;) sleep_until(std::min(until, monotonic_ns() + 20 * MS));
  }
}

Ns RealRun::run() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second signal ends the program
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  if (class_ != "off")
    if (const std::string refused = lock_memory(); !refused.empty()) notices_.push_back(refused);
  std::thread releaser([this] { release_loop(); });
  while (!releasing_) sleep_until(monotonic_ns() + MS / 10);  // a thread not yet urgent may wait for one that is
  {
    std::lock_guard<Guard> lock(guard_);
    origin_ = monotonic_ns() + 2 * MS;  // time for all threads to sleep
    announce_releases();
  }
  const Ns before = process_time_ns();
  begun_ = true;
  tell_supervisor("READY=1");
  if (live_)
    for (const auto& feed : feeds_)
      if (feed) feed->start();
  for (const auto& worker : workers_) worker->mailbox.nudge();  // they learn of their first release
  std::thread writer([this] { journal_loop(); });
  std::thread monitor([this] { monitor_loop(); });
  releaser.join();
  wind_down();
  processor_ = process_time_ns() - before;
  stop_ = true;
  monitor.join();
  writer.join();
  std::lock_guard<Guard> lock(guard_);
  const Ns duration = control_.over() ? std::max(control_.last_end(), control_.interrupted() ? now() : 0)
                                      : std::max(control_.last_end(), control_.settings().in_flight ? 0 : control_.settings().horizon);
  control_.settle(duration);
  journal_.append();
  detections_.append();
  for (const auto& worker : workers_)
    for (const auto& [task, stage] : worker->stages)
      if (const std::string notice = stage->notice(); !notice.empty()) notices_.push_back(notice);
  if (const uint64_t lost = detections_.lost()) notices_.push_back(std::to_string(lost) + " frames' detections were lost");
  if (!detections_.error().empty()) notices_.push_back("the detections are incomplete: " + detections_.error());
  return duration;
}

// Let released frames complete; after an interrupt or failure, only the jobs in progress.
void RealRun::wind_down() {
  while (true) {
    {
      std::lock_guard<Guard> lock(guard_);
      if (control_.over()) {
        control_.halt();
        open_gates(-1);  // nothing resumes suspended jobs any more
      }
      if (control_.running() == 0 && (control_.over() || control_.idle())) {
        control_.halt();
        hung_ = control_.lost_lanes();
        return;
      }
    }
    sleep_until(monotonic_ns() + MS);
  }
}

}  // namespace socsched
