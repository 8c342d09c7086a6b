// A run in real time: one worker thread for every set of lanes, frames released at absolute times, a monitor, a journal.
#pragma once

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

#include "control.hpp"
#include "data_slots.hpp"
#include "journal.hpp"
#include "failure.hpp"
#include "feed.hpp"
#include "realtime.hpp"
#include "mailbox.hpp"
#include "stage.hpp"
#include "wiring.hpp"

namespace socsched {

constexpr Ns AWAKE = 300'000;     // how long it then stays awake, if the workers own their processors
constexpr Ns MONITOR = 4 * MS;   // at least between looks at the running jobs, unless a look is urgent
constexpr Ns JOURNAL = 250 * MS;
constexpr size_t MOST_LEVELS = 64;  // of real-time priorities for the jobs of a lane

volatile std::sig_atomic_t interrupted = 0;

extern "C" void note_signal(int) { interrupted = 1; }

constexpr size_t MOST_SLOTS = 16;  // made before the run; more are added if they are needed
constexpr int WARM_FRAMES = 3;

// By provider, the number of jobs that may hold its outputs at once: its own, those waiting for it, and the latest sampled one.
inline std::vector<size_t> holders(const Wiring& wiring, int providers) {
  std::vector<size_t> counts(static_cast<size_t>(providers), 2);
  for (const Task& task : wiring.plan.tasks) {
    const std::vector<int>&needed = wiring.needs[static_cast<size_t>(task.number)], &carried = wiring.carry[static_cast<size_t>(task.number)];
    std::vector<int> held;
    std::set_union(needed.begin(), needed.end(), carried.begin(), carried.end(), std::back_inserter(held));
    for (const int provider : held) counts[static_cast<size_t>(provider)] += std::min(static_cast<size_t>(task.queue), MOST_SLOTS) + 1 + (task.after.size() > 1);
  }
  for (size_t& count : counts) count = std::clamp(count, size_t{WARM_FRAMES}, MOST_SLOTS);
  return counts;
}

// The tasks whose outputs a task may be handed as those of a provider: conversions pass for what they convert.
inline std::vector<const Task*> makers_of(const Plan& plan, const Task& reader, int provider) {
  std::vector<const Task*> all, direct;
  for (const Task& task : plan.tasks) {
    if (&task == &reader || (task.replaces >= 0 ? task.replaces : task.provider) != provider) continue;
    all.push_back(&task);
    if (std::count(reader.after.begin(), reader.after.end(), task.provider) || std::count(reader.reads.begin(), reader.reads.end(), task.provider)) direct.push_back(&task);
  }
  return direct.empty() ? all : direct;
}

// The form of a port of a stage.
inline TensorType form_of(const StageSettings& stage, size_t port) {
  for (const InputSettings& input : stage.inputs)
    if (stage.kind == "convert" && input.port == port) return input.type;
  return port < stage.outputs.size() ? stage.outputs[port] : TensorType{};
}

constexpr Ns LEAD = 150'000;  // how long before an expected job a worker is woken
constexpr Ns CLAIM = 100'000;  // how long before a release it is decided which thread makes it
constexpr Ns GRACE = 100'000;  // how long the release thread waits for a worker that is to make a release
constexpr Ns DOZE = 500'000;  // the same where it then wakes for the next release only, which saves a wake-up a frame
constexpr int RELEASE_PRIORITY = 90;

class RealRun : public Workers {
 public:
  // Starts the workers, prepares all stages and warms them up; Failure if that fails.
  RealRun(Control& control, Journal& journal, Detections& detections)
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

  ~RealRun() override {
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

  // Release frames until the horizon and wait for the jobs in progress; return the length of the run.
  Ns run() {
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

  Ns origin() const { return origin_; }  // the start of the run on the monotonic clock
  Ns processor() const { return processor_; }  // time of processors that all threads used from there on
  bool hung() const { return hung_; }  // whether a thread does not end
  const std::vector<std::string>& notices() const { return notices_; }

  // Called by `Control` with the guard held.
  void submit(Job* job) override {
    worker_for(*job)->gate.open();  // closed, if the last job there ended before it noticed its suspension
    const bool tensors = computes(job->version, *job->task);
    job->output = tensors ? slots_[static_cast<size_t>(job->version)][static_cast<size_t>(job->task->number)]->take()
                          : &data_[static_cast<size_t>(job->task->provider)];
    retain(job->output);
    hold_frame(*job);
    for (const int seat : worker_for(*job)->seats) busy_[static_cast<size_t>(seat)].store(true, std::memory_order_relaxed);
    submissions_[submission_count_++] = job;
  }

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

    Stage& stage(const Task& task) const {
      size_t i = 0;
      while (base->stages[i].first != &task) i++;
      return *base->stages[i].second;
    }
  };

  static constexpr size_t MOST_POSTINGS = 64;  // at a time; more take another turn

  // A job on its way to its worker.
  struct Posting {
    Worker* worker = nullptr;
    Job* job = nullptr;
  };

  void make_slots() {
    const Settings& settings = control_.settings();
    size_t total = 0;
    for (int version = 0; version < control_.versions(); version++) {
      slots_.emplace_back();
      computes_.emplace_back();
      leaders_.emplace_back();
      std::vector<size_t> counts = holders(control_.wiring(version), control_.names().count());
      for (const Task& task : control_.plan(version).tasks) {
        const int leader = control_.names().find(settings.stage(version, task.name).follows);
        leaders_.back().push_back(leader < 0 ? -1 : control_.data_number(leader));
        if (leader >= 0) counts[static_cast<size_t>(leader)] = std::min(counts[static_cast<size_t>(leader)] + 1, MOST_SLOTS);
      }
      for (const Task& task : control_.plan(version).tasks) {
        const StageSettings& stage = settings.stage(version, task.name);
        computes_.back().push_back(stage.computes());
        const size_t count = counts[static_cast<size_t>(task.replaces >= 0 ? task.replaces : task.provider)];
        require_room(DataSlots::bytes(stage), count, task.name);
        require_room(total += DataSlots::bytes(stage) * count, 1, "the stages together");
        slots_.back().push_back(std::make_unique<DataSlots>(count, stage));
      }
    }
    frames_.resize(data_.size());
    feeds_.resize(data_.size());
    arrived_.resize(data_.size());
    for (const auto& [sensor, given] : settings.inputs)
      if (const int provider = control_.names().find(sensor); provider >= 0) {
        frames_[static_cast<size_t>(provider)] = std::make_unique<SensorFrames>(given);
        if (given.feed < 0) continue;
        const auto arrives = [this, provider](const Feed::Frame& frame) { arrive(provider, frame); };
        feeds_[static_cast<size_t>(provider)] = std::make_unique<Feed>(given, guard_, given.is_live ? arrives : std::function<void(const Feed::Frame&)>());
        if (!given.is_live) feeds_[static_cast<size_t>(provider)]->start();
      }
  }

  // Let outputs that one stage alone reads, in the form in which it takes them, lie where it takes them without a copy.
  void lend_places() {
    const Settings& settings = control_.settings();
    for (int version = 0; version < control_.versions(); version++) {
      const Plan& plan = control_.plan(version);
      std::map<std::pair<const Task*, size_t>, std::vector<std::pair<const Task*, size_t>>> readers;  // by maker and port
      for (const Task& task : plan.tasks) {
        const std::vector<InputSettings>& inputs = settings.stage(version, task.name).inputs;
        for (size_t i = 0; i < inputs.size(); i++)
          for (const Task* const maker : makers_of(plan, task, control_.names().find(inputs[i].from))) readers[{maker, inputs[i].port}].emplace_back(&task, i);
      }
      for (const auto& [made, by] : readers) {
        const auto& [maker, port] = made;
        const auto& [reader, number] = by[0];
        const std::vector<Worker*>& places = worker_of_[static_cast<size_t>(version)][static_cast<size_t>(reader->number)];
        const StageSettings& stage = settings.stage(version, maker->name);
        if (by.size() > 1 || places.size() > 1 || stage.records || stage.kind == "cuda" || !form_of(stage, port).lies_as(settings.stage(version, reader->name).inputs[number].type)) continue;
        DataSlots& slots = *slots_[static_cast<size_t>(version)][static_cast<size_t>(maker->number)];
        for (size_t slot = 0; slot < slots.count() && !slots.lent(slot, port); slot++) {
          const Stage::Offer offer = places[0]->stage(*reader).offer(number);
          if (!offer.memory || !slots.lend(slot, port, offer.memory, offer.bytes)) break;
        }
      }
    }
  }

  // The data of a sensor's frame; without tensors, something that stands for it.
  Data* frame_data(int provider, int64_t frame) {
    const auto& frames = frames_[static_cast<size_t>(provider)];
    return frames ? frames->frame(frame) : &data_[static_cast<size_t>(provider)];
  }

  // Let the outputs of a stage that follows another one keep the frame that they lie in.
  void hold_frame(const Job& job) {
    const int leader = leaders_[static_cast<size_t>(job.version)][static_cast<size_t>(job.task->number)];
    if (leader >= 0) retain(job.output->holds = job.given.data[leader]);
  }

  // Run all stages of all plans on a usable frame of each sensor, one after another, each in its own thread: it warms
  // thread pools and caches, and makes memory for the frames that may later be in progress at once.
  void warm_up() {
    for (int version = 0; version < control_.versions(); version++) {
      if (std::none_of(control_.plan(version).tasks.begin(), control_.plan(version).tasks.end(), [&](const Task& task) { return computes(version, task); }))
        continue;
      std::vector<Data*> held;
      for (int frame = 0; frame < WARM_FRAMES; frame++) warm_frame(version, frame == 0, held);
      for (Data* const data : held) drop(data);
    }
  }

  void warm_frame(int version, bool all_levels, std::vector<Data*>& held) {
    const Plan& plan = control_.plan(version);
    std::vector<Data*> outputs(data_.size(), nullptr), given(control_.sizes().data, nullptr);
    for (size_t provider = 0; provider < frames_.size(); provider++)
      if (frames_[provider]) outputs[provider] = frames_[provider]->warm();
    std::vector<const Task*> left;
    for (const Task& task : plan.tasks)
      if (computes(version, task)) left.push_back(&task);
    const auto ready = [&](const Task* task) {
      const auto& inputs = control_.settings().stage(version, task->name).inputs;
      return std::all_of(inputs.begin(), inputs.end(), [&](const InputSettings& input) {
        return outputs[static_cast<size_t>(control_.names().find(input.from))] != nullptr;
      });
    };
    while (!left.empty()) {
      const auto next = std::find_if(left.begin(), left.end(), ready);
      if (next == left.end()) return;  // stages that read each other's data have none in a first frame either
      const Task& task = **next;
      left.erase(next);
      for (size_t provider = 0; provider < outputs.size(); provider++)
        if (const int number = control_.data_number(static_cast<int>(provider)); number >= 0) given[static_cast<size_t>(number)] = outputs[provider];
      Job job;
      job.task = &task;
      job.version = version;
      job.given.data = given.data();
      job.output = slots_[static_cast<size_t>(version)][static_cast<size_t>(task.number)]->take();
      retain(job.output);
      hold_frame(job);
      held.push_back(job.output);
      Worker* worker = worker_for(job);
      warm_job(*worker, job);
      while (all_levels && (worker = worker->above)) warm_job(*worker, job);
      const auto& places = worker_of_[static_cast<size_t>(version)][static_cast<size_t>(task.number)];
      for (size_t place = 1; place < places.size(); place++) warm_job(*places[place], job);
      outputs[static_cast<size_t>(task.replaces >= 0 ? task.replaces : task.provider)] = job.output;
    }
  }

  void warm_job(Worker& worker, Job& job) {
    warmed_ = false;
    worker.mailbox.put(&job);
    while (!warmed_) sleep_until(monotonic_ns() + 50'000);
    if (!warm_error_.empty()) throw Failure(MACHINE, "stage " + job.task->name + " failed in the warm-up: " + warm_error_);
  }

  Worker* worker_for(const Job& job) const {
    Worker* worker = worker_of_[static_cast<size_t>(job.version)][static_cast<size_t>(job.task->number)][static_cast<size_t>(job.place)];
    while (worker->level < job.level) worker = worker->above;
    return worker;
  }

  // Note which plan is in charge, with the guard held; jobs of others are not resumed by it.
  void note_version() {
    version_.store(control_.version(), std::memory_order_relaxed);
    if (control_.version() != 0) open_gates(control_.version());
    if (control_.over()) over_ = true;
  }

  // Let suspended jobs go on, except those of one plan.
  void open_gates(int but_of) {
    for (const auto& worker : workers_)
      if (worker->version != but_of) worker->gate.open();
  }

  bool computes(int version, const Task& task) const {
    return computes_[static_cast<size_t>(version)][static_cast<size_t>(task.number)];
  }

  // A job of the warm-up, in its worker's thread.
  void execute_warm(Worker& worker, const Job& job) {
    warm_error_.clear();
    try {
      Stage& stage = worker.stage(*job.task);
      Progress progress = stage.launch(job);
      while (progress == Progress::running) progress = stage.poll();
      if (progress == Progress::failed) warm_error_ = stage.error();
    } catch (const std::exception& error) {
      warm_error_ = error.what();
    }
    warmed_ = true;
  }

  // Let go of a recorded job's outputs once they are noted.
  void note_detections(const Task& task, int version, int64_t frame, Data* outputs) {
    detections_.note(static_cast<size_t>(recorded_[static_cast<size_t>(version)][static_cast<size_t>(task.number)]), frame, *outputs);
    std::lock_guard<Guard> lock(guard_);
    drop(outputs);
  }

  // Release a frame of a live feed, in the thread of the feed; deadlines count from its arrival.
  void arrive(int provider, const Feed::Frame& frame) {
    Posting postings[MOST_POSTINGS];
    size_t count;
    bool first = true;
    do {
      std::lock_guard<Guard> lock(guard_);
      if (first && !control_.over()) {
        const Ns time = now(), nominal = frame.time - origin_;
        const int64_t number = arrived_[static_cast<size_t>(provider)]++;
        if (frame.problem.empty())
          control_.release(provider, number, nominal, time, frame.data);
        else
          control_.lose(provider, number, nominal, frame.problem);
        control_.ring().counter(RELEASE_LATE, provider, nominal, static_cast<double>(time - nominal));
        control_.dispatch(time);
      }
      first = false;
      count = collect(postings);
    } while (post(count, postings, nullptr, false), count == MOST_POSTINGS);
  }

  // Whether the frames of an instant have come, as far as they come during the run; with the guard held.
  bool feeds_ready(Ns instant) const {
    return std::all_of(timetable_.rows().begin(), timetable_.rows().end(), [&](const Timetable::Row& row) {
      const auto& feed = feeds_[static_cast<size_t>(row.provider)];
      return !feed || row.next() != instant || feed->ready();
    });
  }

  bool feeds_ended() const {
    return std::all_of(feeds_.begin(), feeds_.end(), [](const auto& feed) { return !feed || feed->ended(); });
  }

  void release_frame(int provider, int64_t frame, Ns nominal, Ns now) {
    if (const auto& feed = feeds_[static_cast<size_t>(provider)]) {
      const Feed::Frame next = feed->take();
      if (next.problem.empty()) return control_.release(provider, frame, nominal, now, next.data);
      return control_.lose(provider, frame, nominal, next.problem);
    }
    const auto& frames = frames_[static_cast<size_t>(provider)];
    if (frames && !frames->problem(frame).empty())
      control_.lose(provider, frame, nominal, frames->problem(frame));
    else
      control_.release(provider, frame, nominal, now, frame_data(provider, frame));
  }

  void dismiss() {
    for (const auto& worker : workers_) worker->mailbox.stop();
    for (const auto& worker : workers_)
      if (worker->thread.joinable()) worker->thread.join();
  }

  // Start one worker for every set of lanes of every plan, and wait until all stages are prepared.
  void hire() {
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

  // The worker of a set of lanes of a plan, made when it is first asked for.
  Worker& worker_on(int version, const std::vector<int>& seats) {
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

  // Give lanes whose jobs are preempted a worker for every job that they can hold.  Where a job can take several lanes,
  // levels are the engine's: a job is above all that it suspends on any of them.
  void make_levels() {
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

  // Return why the jobs of an engine cannot be preempted in real time, empty if they can.
  std::string completion_cause(int version, const Engine& engine) const {
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

  void work(Worker& worker) {
    try {
      prepare(worker);
    } catch (const Failure& failure) {
      worker.problem = failure.what();
      worker.code = failure.code;
      if (!failure.hint.empty()) worker.hint = failure.hint;
    } catch (const std::exception& error) {
      worker.problem = error.what();
    }
    pthread_setname_np(pthread_self(), "worker");
    if (worker.levels > 1) Gate::current() = &worker.gate;
    worker.ready = true;
    Job* job = nullptr;
    while (true) {
      const Ns at = alarm(worker);
      worker.claims.store(at >= 0, std::memory_order_relaxed);
      const Mailbox::Woken woken = worker.mailbox.take(&job, at, !lanes_free(worker) ? -1 : awake_ > 0 ? LEAD : 0);
      worker.claims.store(false, std::memory_order_relaxed);
      if (woken == Mailbox::Woken::stop) break;
      if (woken == Mailbox::Woken::job)
        execute(worker, job);
      else
        release_due(&worker);  // soon: nothing is due yet, but code and data of the next release come into the caches
    }
    worker.ended = true;
  }

  void prepare(Worker& worker) {
    fine_timers();
    worker.notice = pin(worker.processors);
    if (class_ == "fifo") {
      worker.notice += set_fifo(std::max(worker.priority, worker.levels) - (worker.levels - 1 - worker.level));
    }
    {
      std::unique_lock<std::mutex> lock(preparing_, std::defer_lock);
      if (control_.settings().places != Places::planned) lock.lock();
      for (const auto& [task, stage] : worker.stages) stage->prepare();
    }
    if (class_ != "deadline") return;
    Ns period = worker.tasks[0]->period, deadline = worker.tasks[0]->deadline;
    double used = 0;
    for (const Task* task : worker.tasks) {
      period = std::min(period, task->period);
      deadline = std::min(deadline, task->deadline);
      used += static_cast<double>(task->wcet) / static_cast<double>(task->period);
    }
    const Ns runtime = std::min(std::max(static_cast<Ns>(used * static_cast<double>(period)), Ns{1024}), period);
    worker.notice += set_deadline(runtime, std::max(std::min(deadline, period), runtime), period);
  }

  void execute(Worker& worker, Job* job) {
    if (warming_) return execute_warm(worker, *job);
    const Task& task = *job->task;
    const int64_t frame = job->frame;
    const bool recorded = recorded_[static_cast<size_t>(worker.version)][static_cast<size_t>(task.number)] >= 0;
    Data* noted = nullptr;
    Ns start = now();
    __atomic_store_n(&job->begun, start, __ATOMIC_RELEASE);
    std::string error;
    Progress progress = Progress::failed;
    try {
      if (!spent_.empty()) inject(worker, task, error);
      if (error.empty()) {
        Stage& stage = worker.stage(task);
        progress = stage.launch(*job);
        while (progress == Progress::running) progress = stage.poll();
        if (progress == Progress::failed) error = stage.error();
        if (!begun_jobs_.empty()) prolong(worker, task, start);
      }
    } catch (const std::exception& raised) {
      error = raised.what();
      progress = Progress::failed;
    }
    Ns end = now();
    if (const Stage::Busy busy = progress == Progress::done ? worker.stage(task).busy() : Stage::Busy{}; busy.until) {
      start = busy.from - origin_;
      end = busy.until - origin_;
    }
    if (progress == Progress::done && !job->abandoned && !job->is_void) show(worker.stage(task), *job, error, progress);
    Posting postings[MOST_POSTINGS];
    size_t count;
    do {
      std::lock_guard<Guard> lock(guard_);
      if (job) {
        if (!job->abandoned) {
          for (const int seat : worker.seats) busy_[static_cast<size_t>(seat)].store(false, std::memory_order_relaxed);
          std::atomic<Ns>& shortest = shortest_[static_cast<size_t>(task.provider)];
          const Ns before = shortest.load(std::memory_order_relaxed);
          shortest.store(before ? std::min(end - start, before + before / 64) : end - start, std::memory_order_relaxed);
        }
        if (recorded && progress == Progress::done && !job->abandoned && !job->is_void) retain(noted = job->output);
        if (progress == Progress::done)
          control_.ended(job, start, end);
        else
          control_.failed(job, start, end, error);
        control_.dispatch(end);
        release_more(end);
        job = nullptr;
      }
      note_version();
      count = collect(postings);
    } while (post(count, postings, &worker, false), count == MOST_POSTINGS);
    if (noted) note_detections(task, worker.version, frame, noted);
  }

  // Show the outputs of a job, and let it fail if that is impossible.
  void show(Stage& stage, const Job& job, std::string& error, Progress& progress) {
    try {
      stage.show(job);
    } catch (const std::exception& raised) {
      error = raised.what();
      progress = Progress::failed;
    }
  }

  // Hang or fail if a failure is to be injected here.
  void inject(const Worker& worker, const Task& task, std::string& error) {
    const std::vector<InjectedFailure>& failures = control_.settings().failures;
    const std::string& engine = control_.plan(worker.version).engines[static_cast<size_t>(task.engine)].id;
    for (size_t i = 0; i < failures.size(); i++) {
      const InjectedFailure& failure = failures[i];
      bool here = failure.engine == engine && now() >= failure.at;
      if (!failure.lanes.empty())
        here &= std::any_of(task.lanes.begin(), task.lanes.end(), [&](int lane) {
          return std::find(failure.lanes.begin(), failure.lanes.end(), lane) != failure.lanes.end();
        });
      if (!here || spent_[i].exchange(true)) continue;
      while (failure.hangs && !stop_) sleep_until(monotonic_ns() + 10 * MS);
      if (failure.hangs)
        error = "it hung";  // its data are no longer there
      else
        error = "InjectedFailure: " + engine + " failed, as specified in the faults file";
    }
  }

  // Occupy the lanes for the time that injected slowdowns and overruns add to a job.
  void prolong(const Worker& worker, const Task& task, Ns start) {
    const std::vector<Prolonging>& prolongings = control_.settings().prolongings;
    const Plan& plan = control_.plan(worker.version);
    double factor = 1;
    for (size_t i = 0; i < prolongings.size(); i++) {
      const Prolonging& one = prolongings[i];
      if (!one.engine.empty() && one.engine != plan.engines[static_cast<size_t>(task.engine)].id) continue;
      if (!one.stage.empty()) {
        if (one.stage != task.name || !std::binary_search(one.jobs.begin(), one.jobs.end(), begun_jobs_[i]++)) continue;
      } else if (start < one.from || start >= one.until) {
        continue;
      }
      factor *= one.factor;
    }
    if (factor <= 1) return;
    const Ns until = origin_ + start + static_cast<Ns>(static_cast<double>(now() - start) * factor);
    while (monotonic_ns() < until && !stop_) sleep_until(std::min(until, monotonic_ns() + 50 * MS));
  }

  // The next release whose first job is the worker's own, monotonic; -1: none.
  Ns alarm(const Worker& worker) const {
    if (worker.version != version_.load(std::memory_order_relaxed)) return -1;
    Ns first = NEVER;
    for (const int row : worker.rows) first = std::min(first, next_release_[static_cast<size_t>(row)].load(std::memory_order_acquire));
    return first == NEVER || first == 0 ? -1 : first;
  }

  bool lanes_free(const Worker& worker) const {
    return std::none_of(worker.seats.begin(), worker.seats.end(),
                        [this](int seat) { return busy_[static_cast<size_t>(seat)].load(std::memory_order_relaxed); });
  }

  // Null: called by the release thread
  // Release all frames that are due, and start their first jobs.
  void release_due(Worker* worker) {
    Posting postings[MOST_POSTINGS];
    size_t count;
    do {
      std::lock_guard<Guard> lock(guard_);
      const Ns time = now();
      release_more(time);
      control_.dispatch(time);
      for (Ns instant = control_.settings().in_flight ? -1 : timetable_.next(); instant >= 0 && instant <= time && feeds_ready(instant) && !control_.over(); instant = timetable_.next()) {
        timetable_.take(instant, [&](int provider, int64_t frame) {
          release_frame(provider, frame, instant, time);
          control_.ring().counter(RELEASE_LATE, provider, instant, static_cast<double>(time - instant));
        });
        control_.dispatch(time);
      }
      announce_releases();
      count = collect(postings);
    } while (post(count, postings, worker, worker != nullptr), count == MOST_POSTINGS);
  }

  // Release the next frames while fewer than allowed are in progress, with the guard held; without effect at planned rates.
  void release_more(Ns time) {
    while (time >= 0 && control_.ledger().open_groups() < control_.settings().in_flight && !control_.over()) {
      const Ns instant = timetable_.next();
      if (instant < 0 || !feeds_ready(instant)) return;
      control_.begin_group();
      timetable_.take(instant, [&](int provider, int64_t frame) { release_frame(provider, frame, time, time); });
      control_.dispatch(time);
    }
  }

  bool frames_left() {
    std::lock_guard<Guard> lock(guard_);
    return timetable_.next() >= 0;
  }

  // Let all threads know when frames are released next, with the guard held.
  void announce_releases() {
    for (size_t row = 0; row < timetable_.rows().size(); row++) {
      const Ns next = timetable_.rows()[row].next();
      const bool comes = next < control_.settings().horizon && !control_.over() && !control_.settings().in_flight && !live_;
      const Ns earliest = feeds_ready(next) ? 0 : monotonic_ns() + MS / 2;  // to look again for data that have not come
      next_release_[row].store(comes ? std::max(origin_ + next, earliest) : NEVER, std::memory_order_release);
    }
  }

  void release_loop() {
    pthread_setname_np(pthread_self(), "release");
    fine_timers();
    if (class_ != "off") set_fifo(RELEASE_PRIORITY);
    short_turns();
    releasing_ = true;
    while (!begun_) sleep_until(monotonic_ns() + MS / 10);
    if (control_.settings().in_flight) sleep_until(origin_);
    for (bool left = control_.settings().in_flight > 0; left && !over_; left = frames_left()) {  // ends of jobs release most frames
      release_due(nullptr);
      sleep_until(monotonic_ns() + (feeds_ended() ? 20 * MS : MS));
    }
    while (live_ && !feeds_ended() && !over_) sleep_until(monotonic_ns() + MS);
    while (!over_) {
      Ns next = NEVER;
      for (const std::atomic<Ns>& row : next_release_) next = std::min(next, row.load(std::memory_order_acquire));
      if (next == NEVER) break;
      for (const auto& worker : workers_) worker->mailbox.ring();
      const Ns time = monotonic_ns();
      if (time < next - CLAIM) {
        sleep_until(std::min(next - CLAIM, time + 100 * MS));
      } else if (claimed(next) && time < next + GRACE) {
        const Ns decision = following(next) - CLAIM;
        sleep_until(decision > next && decision < next + DOZE ? decision : next + GRACE);
      } else if (time < next) {
        sleep_until(next);
      } else {
        release_due(nullptr);
      }
    }
  }

  // Whether an idle worker will make a release itself, since its first job is its own.
  bool claimed(Ns instant) const {
    for (const auto& worker : workers_) {
      if (!worker->claims.load(std::memory_order_relaxed)) continue;
      for (const int row : worker->rows)
        if (next_release_[static_cast<size_t>(row)].load(std::memory_order_relaxed) == instant) return true;
    }
    return false;
  }

  // The first release after the next one, monotonic.
  Ns following(Ns next) const {
    Ns first = NEVER;
    for (size_t row = 0; row < next_release_.size(); row++) {
      const Ns at = next_release_[row].load(std::memory_order_relaxed);
      if (at != NEVER) first = std::min(first, at == next ? at + timetable_.rows()[row].period : at);
    }
    return first;
  }

  void monitor_loop() {
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

  void journal_loop() {
    pthread_setname_np(pthread_self(), "journal");
    while (!stop_) {
      journal_.append();
      detections_.append();
      for (Ns until = monotonic_ns() + JOURNAL; monotonic_ns() < until && !stop_;) sleep_until(std::min(until, monotonic_ns() + 20 * MS));
    }
  }

  // Hand jobs to their workers: to others first, which have to wake up, then to the calling one.
  void post(size_t count, const Posting* postings, const Worker* own, bool quietly) {
    for (const bool mine : {false, true})
      for (size_t i = 0; i < count; i++) {
        const Posting& posting = postings[i];
        if ((posting.worker == own) != mine) continue;
        if (awake_ > 0) expect_followers(*posting.job->task, posting.job->version, monotonic_ns(), quietly);
        posting.worker->mailbox.put(posting.job);  // from here on another thread may end it
      }
  }

  // Take the jobs submitted under the guard.
  size_t collect(Posting* postings) {
    const size_t count = std::min(submission_count_, MOST_POSTINGS);
    submission_count_ -= count;
    for (size_t i = 0; i < count; i++) {
      Job* const job = submissions_[submission_count_ + i];
      postings[i] = {worker_for(*job), job};
    }
    return count;
  }

  // Wake the workers of a job's successors shortly before it will have ended; it begins at `from`.
  void expect_followers(const Task& task, int version, Ns from, bool quietly) {
    const Ns shortest = shortest_[static_cast<size_t>(task.provider)].load(std::memory_order_relaxed);
    if (!shortest) return;
    const Wiring& wiring = control_.wiring(version);
    const Ns at = from + shortest;
    for (const int number : wiring.followers[static_cast<size_t>(task.provider)]) {
      Worker& worker = *worker_of_[static_cast<size_t>(version)][static_cast<size_t>(number)][0];
      if (leaders_[static_cast<size_t>(version)][static_cast<size_t>(number)] >= 0)
        expect_followers(wiring.plan.tasks[static_cast<size_t>(number)], version, at, quietly);
      else if (worker.seats != task.seats && !worker.processors.empty() && lanes_free(worker))
        worker.mailbox.expect(at - LEAD, at + awake_, quietly);
    }
  }

  // Let released frames complete; after an interrupt or failure, only the jobs in progress.
  void wind_down() {
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

// Data of a run in real time: slots of stages, frames of sensors, and the warm-up, which runs every stage before time zero.

// Workers: threads that prepare and run the stages of their lanes, and what wakes them.

// Releases of frames at absolute times: by the idle worker whose job is first, otherwise by the release thread.

}  // namespace socsched
