// Workers: threads that prepare and run the stages of their lanes, and what wakes them.
#include <algorithm>
#include <mutex>
#include <pthread.h>

#include "failure.hpp"
#include "real_run.hpp"
#include "realtime.hpp"

namespace socsched {

namespace {

constexpr Ns LEAD = 150'000;  // how long before an expected job a worker is woken

}  // namespace

void RealRun::prepare(Worker& worker) {
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

void RealRun::work(Worker& worker) {
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

void RealRun::execute(Worker& worker, Job* job) {
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
void RealRun::show(Stage& stage, const Job& job, std::string& error, Progress& progress) {
  try {
    stage.show(job);
  } catch (const std::exception& raised) {
    error = raised.what();
    progress = Progress::failed;
  }
}

// Hang or fail if a failure is to be injected here.
void RealRun::inject(const Worker& worker, const Task& task, std::string& error) {
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
void RealRun::prolong(const Worker& worker, const Task& task, Ns start) {
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

bool RealRun::lanes_free(const Worker& worker) const {
  return std::none_of(worker.seats.begin(), worker.seats.end(),
                      [this](int seat) { return busy_[static_cast<size_t>(seat)].load(std::memory_order_relaxed); });
}

RealRun::Worker* RealRun::worker_for(const Job& job) const {
  Worker* worker = worker_of_[static_cast<size_t>(job.version)][static_cast<size_t>(job.task->number)][static_cast<size_t>(job.place)];
  while (worker->level < job.level) worker = worker->above;
  return worker;
}

// Let suspended jobs go on, except those of one plan.
void RealRun::open_gates(int but_of) {
  for (const auto& worker : workers_)
    if (worker->version != but_of) worker->gate.open();
}

// Note which plan is in charge, with the guard held; jobs of others are not resumed by it.
void RealRun::note_version() {
  version_.store(control_.version(), std::memory_order_relaxed);
  if (control_.version() != 0) open_gates(control_.version());
  if (control_.over()) over_ = true;
}

void RealRun::submit(Job* job) {
  worker_for(*job)->gate.open();  // closed, if the last job there ended before it noticed its suspension
  const bool tensors = computes(job->version, *job->task);
  job->output = tensors ? slots_[static_cast<size_t>(job->version)][static_cast<size_t>(job->task->number)]->take()
                        : &data_[static_cast<size_t>(job->task->provider)];
  retain(job->output);
  hold_frame(*job);
  for (const int seat : worker_for(*job)->seats) busy_[static_cast<size_t>(seat)].store(true, std::memory_order_relaxed);
  submissions_[submission_count_++] = job;
}

// Wake the workers of a job's successors shortly before it will have ended; it begins at `from`.
void RealRun::expect_followers(const Task& task, int version, Ns from, bool quietly) {
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

size_t RealRun::collect(Posting* postings) {
  const size_t count = std::min(submission_count_, MOST_POSTINGS);
  submission_count_ -= count;
  for (size_t i = 0; i < count; i++) {
    Job* const job = submissions_[submission_count_ + i];
    postings[i] = {worker_for(*job), job};
  }
  return count;
}

// Hand jobs to their workers: to others first, which have to wake up, then to the calling one.
void RealRun::post(size_t count, const Posting* postings, const Worker* own, bool quietly) {
  for (const bool mine : {false, true})
    for (size_t i = 0; i < count; i++) {
      const Posting& posting = postings[i];
      if ((posting.worker == own) != mine) continue;
      if (awake_ > 0) expect_followers(*posting.job->task, posting.job->version, monotonic_ns(), quietly);
      posting.worker->mailbox.put(posting.job);  // from here on another thread may end it
    }
}

}  // namespace socsched
