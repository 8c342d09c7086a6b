// Which jobs are ready, which may start, which are dropped, and where data flows: the state of one running plan.
//
// A job needs all lanes of one of its places.  Ready jobs are served in the order of their policy, and those of lower
// priority fill lanes that a waiting one cannot use yet: the simulator's rule, for which the bounds of the analysis hold,
// and which a run on a virtual clock must equal job by job.  Nothing here waits, allocates or reads a clock: callers
// report releases and finished jobs with their times, and ask for the jobs to start.  One thread at a time.
#pragma once

#include <algorithm>
#include <vector>

#include "job.hpp"
#include "settings.hpp"
#include "wiring.hpp"

namespace socsched {

// Criticality isolation: less critical jobs yield to more critical ones.
//
// A job does not start while a more critical one is ready or running anywhere, nor if it would probably still run at
// the next release of a more critical frame.  It waits for at most one period of its task.
class Isolation {
 public:
  Isolation(const Wiring& wiring, const Sources& sources)
      : due_(static_cast<size_t>(sources.count()), -1), longest_(wiring.plan.tasks.size(), 0), sources_(due_.size()) {
    const Plan& plan = wiring.plan;
    int least = HARD;
    for (const Task& task : plan.tasks) least = std::min<int>(least, task.criticality);
    const auto add = [&](int provider, Ns period) {
      const int rank = highest(wiring, provider);
      if (rank > least) sources_[static_cast<size_t>(sources.of(provider))] = {rank, period};
    };
    for (const Sensor& sensor : plan.sensors) add(sensor.provider, sensor.period);
    for (const Task& task : plan.tasks)
      if (task.timer) add(task.provider, task.period);
  }

  // The next frame of a source is due a period after this one.
  void released(int source, Ns release) {
    const Source& from = sources_[static_cast<size_t>(source)];
    if (from.period) due_[static_cast<size_t>(source)] = release + from.period;
  }

  // Record an execution time; the recorded maximum shrinks by 1/32 with every shorter job.
  void ended(const Task& task, Ns exec) {
    Ns& longest = longest_[static_cast<size_t>(task.number)];
    longest = std::max(exec, longest - longest / 32);
  }

  // Whether a job must not start now; `first` is the highest criticality among ready and running jobs.
  bool holds_back(const Job& job, int first, Ns now) const {
    const Task& task = *job.task;
    if (now - job.activation >= task.period) return false;
    if (task.criticality < first) return true;
    const Ns end = now + longest_[static_cast<size_t>(task.number)];
    for (size_t i = 0; i < sources_.size(); i++)
      if (sources_[i].rank > task.criticality && due_[i] >= 0 && due_[i] < end && now < due_[i] + sources_[i].period)
        return true;  // it is due before this job would end, and not a whole period overdue
    return false;
  }

 private:
  struct Source {
    int rank = 0;
    Ns period = 0;  // 0: nothing more critical than the rest follows it
  };

  // The highest criticality among all successors of a source, including the source if it is a timer.
  static int highest(const Wiring& wiring, int provider) {
    std::vector<char> reached(wiring.followers.size(), 0);
    std::vector<int> open{provider};
    reached[static_cast<size_t>(provider)] = 1;
    int rank = 0;
    std::vector<std::vector<int>> behind(wiring.followers.size());
    for (const Task& task : wiring.plan.tasks) {
      for (const int name : task.after) behind[static_cast<size_t>(name)].push_back(task.number);
      if (task.provider == provider) rank = task.criticality;
    }
    while (!open.empty()) {
      const int name = open.back();
      open.pop_back();
      for (const int number : behind[static_cast<size_t>(name)]) {
        const Task& task = wiring.plan.tasks[static_cast<size_t>(number)];
        if (reached[static_cast<size_t>(task.provider)]) continue;
        reached[static_cast<size_t>(task.provider)] = 1;
        rank = std::max<int>(rank, task.criticality);
        open.push_back(task.provider);
      }
    }
    return rank;
  }

  std::vector<Ns> due_, longest_;
  std::vector<Source> sources_;
};

// Overload handling by policies that the user sets per stage (socsched/runtime/options.py has the format).
class Overload {
 public:
  explicit Overload(const Settings& settings)
      : any_(!settings.overload.empty() || settings.shed_below), below_(settings.shed_below), shed_(settings.shed) {}

  bool any() const { return any_; }

  // What happens to a job that starts with `slack` left to its deadline: none, skip or degrade.
  static OnOverload choose(OnOverload rule, const Task& task, Ns slack) {
    return rule == OnOverload::abort || slack >= task.wcet ? OnOverload::none : rule;
  }

  // Record a missed deadline; return true if shedding begins with it.
  bool missed(const Task& task, Ns now) {
    if (!below_ || task.criticality < below_) return false;
    const bool began = now >= until_;
    until_ = now + shed_;
    return began;
  }

  bool sheds(const Task& task, Ns now) const { return now < until_ && task.criticality < below_; }

 private:
  bool any_;
  int below_;
  Ns shed_, until_ = -1;
};

inline size_t at(int number) { return static_cast<size_t>(number); }

// What all dispatchers of a run share.
struct Books {
  const Settings& settings;
  const Sources& sources;
  Ledger& ledger;
  Store& store;
  Ring& ring;
  const std::vector<int>& data_number;  // by provider: number of its data in `Frame::data`, -1 if no task needs them
  std::vector<int64_t>& depths;         // by provider: the recorded depth of a task's queue, -1 before the first record
};

class Dispatcher {
 public:
  Dispatcher(const Wiring& wiring, Books books)
      : wiring_(wiring), books_(books), overload_(books.settings), isolation_(wiring, books.sources) {
    const size_t tasks = wiring.plan.tasks.size(), providers = wiring.followers.size();
    const Store::Size& size = books.store.size();
    blocks_ = !books.settings.alone && (books.settings.places == Places::planned || books.settings.places == Places::equal);
    seats_.assign(size.seats, nullptr);
    slots_.assign(size.seats, nullptr);
    joins_.assign(tasks, nullptr);
    waiting_.assign(tasks, 0);
    changed_.assign(tasks, 0);
    lost_.assign(tasks, 0);
    changes_.reserve(tasks);
    started_.assign(tasks, 0);
    for (std::vector<Job*>* const list : {&held_, &suspended_, &resumed_}) list->reserve(tasks);
    latest_.resize(providers);
    const size_t sampled = at(static_cast<int>(std::count(wiring.sampled.begin(), wiring.sampled.end(), 1)));
    latest_origins_.resize(sampled * size.sources);
    latest_data_.resize(sampled * size.data);
    size_t next = 0;
    for (size_t i = 0; i < providers; i++)
      if (wiring.sampled[i]) {
        latest_[i].frame.origins = latest_origins_.data() + next * size.sources;
        latest_[i].frame.data = latest_data_.data() + next++ * size.data;
      }
    spare_origins_.resize(size.sources);
    spare_data_.resize(size.data);
    spare_tickets_.resize(size.sources);
    for (const Task& task : wiring.plan.tasks) levels_ |= task.high > 0 && !books.settings.in_flight;
    spare_ = {0, spare_origins_.data(), spare_data_.data(), spare_tickets_.data()};
  }

  // -- events

  void release(int provider, int64_t number, Ns release, Ns now, Data* data) {
    books_.ring.release(provider, release);
    const int source = books_.sources.of(provider);
    isolation_.released(source, release);
    if (outstanding_ == 0) high_ = false;
    Ticket* const ticket = books_.ledger.release(source);
    if (!ticket) {
      books_.ring.instant({now, Kind::drop, provider, number, Text::no_room});
      return;
    }
    const Store::Size& size = books_.store.size();
    std::fill_n(spare_.origins, size.sources, Origin{});
    std::fill_n(spare_.tickets, size.sources, nullptr);
    std::fill_n(spare_.data, size.data, nullptr);
    spare_.release = release;
    spare_.origins[source] = {number, release};
    spare_.tickets[source] = ticket;
    const int timer = wiring_.timer[at(provider)];
    if (timer >= 0) {
      ticket->holds++;
      activate(wiring_.plan.tasks[at(timer)], number, spare_, now);
    } else {
      const int mine = books_.data_number[at(provider)];
      if (mine >= 0) spare_.data[mine] = data;
      retain(data);
      deliver(provider, number, spare_, now);
      drop(data);
    }
    books_.ledger.let_go(ticket);
  }

  // A frame that arrived but cannot be used.
  void lose(int provider, int64_t number, Ns release, Text why, int64_t a = 0) {
    const int source = books_.sources.of(provider);
    isolation_.released(source, release);
    books_.ring.release(provider, release);
    books_.ring.instant({release, Kind::input, provider, number, why, a});
    books_.ring.instant({release, Kind::drop, provider, number, Text::lost_frame});
    books_.ledger.lose(source);
  }

  // Take the jobs that start now, most urgent first, at most one for every lane; `tidy` must follow.  Return their number.
  // Started jobs that lose or regain their lanes are in `suspended` and `resumed` until the next call.
  size_t pick(Ns now, Job** started) {
    size_t count = 0;
    int first = 0;
    const bool shield = books_.settings.shield;
    if (shield)
      for (const JobList* list : {&running_, &ready_})
        for (const Job* job = list->first; job; job = job->next) first = std::max<int>(first, job->task->criticality);
    hold();
    for (Job *job = ready_.first, *next = nullptr; job; job = next) {
      next = job->next;
      if (books_.settings.alone && running_.first) break;
      keep(job);
      if ((shield && isolation_.holds_back(*job, first, now)) || started_[at(job->task->number)]) continue;
      const int place = free_place(*job);
      if (place < 0) continue;
      const int above = preemptive(*job->task) ? level(*job->task) : 0;
      if (above >= wiring_.levels[at(job->task->number)]) continue;  // a job below has ended, but one above it has not
      leave_queue(job);
      if (!sample(job, now) || !worthwhile(job, now)) continue;
      job->place = place;
      for (const int seat : seats(*job)) seats_[at(seat)] = job;
      job->since = now;
      if (preemptive(*job->task)) {
        started_[at(job->task->number)] = 1;
        job->level = above;
      } else {
        size_t slot = 0;
        while (slots_[slot]) slot++;  // at most one running job for every lane
        slots_[slot] = job;
        job->slot = static_cast<int>(slot);
      }
      running_.insert_after(running_.last, job);
      started[count++] = job;
    }
    keep(nullptr);
    switch_jobs(now);
    if (count && ready_.first && blocks_) note_blockers(started, count);
    return count;
  }

  const std::vector<Job*>& suspended() const { return suspended_; }
  const std::vector<Job*>& resumed() const { return resumed_; }

  // Drop jobs that no longer fit the queues, and record the queue depths.
  void tidy(Ns now) {
    for (const int number : changes_) {
      const Task& task = wiring_.plan.tasks[at(number)];
      overflow(task, now);
    }
    for (const int number : changes_) {
      const Task& task = wiring_.plan.tasks[at(number)];
      changed_[at(number)] = 0;
      const int64_t depth = waiting_[at(number)];
      int64_t& recorded = books_.depths[at(task.provider)];
      if (depth == std::max(recorded, int64_t{0})) continue;
      if (recorded < 0) books_.ring.counter(QUEUE_DEPTH, task.provider, 0, 0.0);
      recorded = depth;
      books_.ring.counter(QUEUE_DEPTH, task.provider, now, static_cast<double>(depth));
    }
    changes_.clear();
  }

  void ended(Job* job, Ns start, Ns end) {
    const Task& task = *job->task;
    job->start = start;
    job->finish = end;
    job->exec = job->executed(start, end);
    const bool suspended = job->suspended;
    vacate(job, end);
    isolation_.ended(task, job->exec);
    if (levels_ && task.high && job->exec > task.wcet) raise_level(job, end);
    const bool late = end > job->deadline;
    if (late && overload_.any() && overload_.missed(task, end))
      books_.ring.instant({end, Kind::overload, task.provider, job->frame, Text::work_shed});
    if (!suspended) slice(job, std::max(start, job->since), end);
    if (late) books_.ring.instant({end, Kind::miss, task.provider, job->frame, Text::late, end - job->deadline});
    if (job->is_void) {
      abort_job(job, end, Text::replaced_running);
    } else if (late && wiring_.overload[at(task.number)] == OnOverload::abort) {
      abort_job(job, end, Text::too_late);
    } else {
      job->status = Status::done;
      if (!wiring_.followers[at(task.provider)].empty() || wiring_.sampled[at(task.provider)]) {
        outcome(job, spare_);
        deliver(task.provider, job->frame, spare_, end);
      }
      let_go(job->given, COMPLETED);
      retire_job(job);
    }
  }

  enum class Abandon { unfinished, aborted };
  // Stop a started job that failed or hangs; if it is to be aborted, the text says why.
  void abandon(Job* job, Ns start, Ns end, Abandon how, Text why = Text::failed, int64_t a = 0, int64_t b = 0, int64_t c = 0) {
    job->start = start;
    job->exec = job->executed(start, end);
    job->abandoned = true;
    const bool suspended = job->suspended;
    vacate(job, end);
    if (!suspended) slice(job, std::max(start, job->since), end);
    if (why == Text::hangs || suspended) {  // its thread may still use its data, which are therefore never reused
      for (size_t i = 0; i < books_.store.size().data; i++) retain(job->given.data[i]);
      retain(job->output);
    }
    if (how == Abandon::aborted) {
      abort_job(job, end, why, a, b, c);
    } else {
      let_go(job->given, ABORTED);
      retire_job(job);
    }
  }

  // Abort the frames that need a task on exactly these lanes from now on.
  void retire(const std::vector<int>& seats, Ns now) {
    retired_.push_back(seats);
    for (const Task& task : wiring_.plan.tasks)
      if (wiring_.places[at(task.number)][0] == seats) lost_[at(task.number)] = 1;
    for (Job *job = ready_.first, *next = nullptr; job; job = next) {
      next = job->next;
      if (!lost_[at(job->task->number)]) continue;
      leave_queue(job);
      outstanding_--;
      abort_job(job, now, Text::out_of_service, job->task->engine, wiring_.version);
    }
  }

  // Another plan takes over.
  void close(Ns now) {
    while (Job* const job = ready_.first) {
      leave_queue(job);
      outstanding_--;
      abort_job(job, now, Text::replaced);
    }
    for (Job* job = running_.first; job; job = job->next) job->is_void = true;
    for (Join*& first : joins_)
      while (Join* const join = first) {
        first = join->next;
        finish_join(join, ABORTED);
      }
    tidy(now);
  }

  // Take over the latest data of another plan.
  void inherit(const Dispatcher& other) {
    for (size_t provider = 0; provider < latest_.size(); provider++) {
      const Latest& theirs = other.latest_[provider];
      if (!wiring_.sampled[provider] || theirs.number < 0) continue;
      Latest& mine = latest_[provider];
      mine.number = theirs.number;
      std::copy_n(theirs.frame.origins, books_.store.size().sources, mine.frame.origins);
      std::copy_n(theirs.frame.data, books_.store.size().data, mine.frame.data);
      for (size_t i = 0; i < books_.store.size().data; i++) retain(mine.frame.data[i]);
    }
  }

  // End the run.
  void settle() {
    for (Join*& first : joins_)
      while (Join* const join = first) {
        first = join->next;
        finish_join(join, DROPPED);
      }
    for (JobList* const list : {&ready_, &running_})  // a run that ends early leaves jobs unfinished
      while (Job* const job = list->first) {
        list->remove(job);
        job->abandoned = list == &running_;
        retire_job(job);
      }
  }

  // The earliest instant at which a running job can raise the level of criticality, INT64_MAX: none can.
  Ns next_overrun() const {
    Ns next = INT64_MAX;
    if (!levels_ || high_) return next;
    for (const Job* job = running_.first; job; job = job->next) {
      if (!job->task->high || job->is_void || job->suspended) continue;
      const Ns begun = __atomic_load_n(&job->begun, __ATOMIC_ACQUIRE);
      next = std::min(next, std::max(begun, job->since) + job->task->wcet - job->ran);
    }
    return next;
  }

  // Raise the level if a running job has run for longer than planned.
  void check_overruns(Ns now) {
    if (!levels_ || high_) return;
    const Job* by = nullptr;
    for (const Job* job = running_.first; job; job = job->next) {
      const Ns begun = __atomic_load_n(&job->begun, __ATOMIC_ACQUIRE);
      if (!job->task->high || job->is_void || begun < 0 || job->executed(begun, now) < job->task->wcet) continue;
      if (!by || job->index < by->index) by = job;
    }
    if (by) raise_level(by, now);
  }

  const Wiring& wiring() const { return wiring_; }
  int64_t outstanding() const { return outstanding_; }
  const JobList& running() const { return running_; }
  int64_t waiting(const Task& task) const { return waiting_[static_cast<size_t>(task.number)]; }
  const std::vector<int>& seats(const Job& job) const {  // the lanes on which it runs
    return wiring_.places[static_cast<size_t>(job.task->number)][static_cast<size_t>(job.place)];
  }

 private:
  struct Latest {
    int64_t number = -1;
    Frame frame;  // tickets unused
  };

  void deliver(int provider, int64_t number, const Frame& frame, Ns now) {
    Latest& latest = latest_[at(provider)];
    if (wiring_.sampled[at(provider)] && number >= latest.number) {
      latest.number = number;
      const Store::Size& size = books_.store.size();
      std::copy_n(frame.origins, size.sources, latest.frame.origins);
      for (size_t i = 0; i < size.data; i++) {
        retain(frame.data[i]);
        drop(latest.frame.data[i]);
        latest.frame.data[i] = frame.data[i];
      }
    }
    for (const int follower : wiring_.followers[at(provider)]) hand(wiring_.plan.tasks[at(follower)], number, frame, now);
  }

  // Hand a frame to one follower, which becomes ready once it has the same frame of all its inputs.
  void hand(const Task& task, int64_t number, const Frame& frame, Ns now) {
    const Store::Size& size = books_.store.size();
    if (task.after.size() == 1) {
      for (size_t i = 0; i < size.sources; i++)
        if (frame.tickets[i]) frame.tickets[i]->holds++;
      activate(task, number, frame, now);
      return;
    }
    Join** place = &joins_[at(task.number)];
    while (*place && ((*place)->number - number) % wiring_.apart != 0) place = &(*place)->next;
    if (*place && (*place)->number != number) {  // one input is too far ahead of another
      Join* const lost = *place;
      *place = lost->next;
      finish_join(lost, DROPPED);
      while (*place) place = &(*place)->next;
    }
    if (!*place) {
      *place = books_.store.join();  // there is one for each of the frames that may be apart
      (*place)->number = number;
      (*place)->frame.release = frame.release;
    }
    Join* const join = *place;
    join->frame.release = std::min(join->frame.release, frame.release);
    merge(join->frame, frame);
    for (size_t i = 0; i < size.sources; i++)
      if (frame.tickets[i] && !join->frame.tickets[i]) {
        frame.tickets[i]->holds++;
        join->frame.tickets[i] = frame.tickets[i];
      }
    for (size_t i = 0; i < size.data; i++)
      if (frame.data[i]) {
        retain(frame.data[i]);
        drop(join->frame.data[i]);
        join->frame.data[i] = frame.data[i];
      }
    if (++join->arrived < task.after.size()) return;
    *place = join->next;
    forget_older(task, number - wiring_.disorder);
    activate(task, number, join->frame, now);
    for (size_t i = 0; i < size.data; i++) drop(join->frame.data[i]);
    books_.store.give(join);
  }

  // Takes over its holds and data.
  void activate(const Task& task, int64_t number, const Frame& frame, Ns now) {
    const Store::Size& size = books_.store.size();
    Job* const job = books_.store.job();
    if (!job) {
      books_.ring.instant({now, Kind::drop, task.provider, number, Text::no_room});
      for (size_t i = 0; i < size.sources; i++)
        if (frame.tickets[i]) books_.ledger.let_go(frame.tickets[i], DROPPED);
      return;
    }
    job->task = &task;
    job->version = wiring_.version;
    job->frame = number;
    job->index = books_.ledger.jobs++;
    job->activation = now;
    job->deadline = frame.release + task.deadline;
    job->given.release = frame.release;
    std::copy_n(frame.origins, size.sources, job->given.origins);
    std::copy_n(frame.tickets, size.sources, job->given.tickets);
    std::copy_n(frame.data, size.data, job->given.data);
    for (size_t i = 0; i < size.data; i++) retain(job->given.data[i]);
    job->key = wiring_.orders[at(task.number)].key(task, number, now, job->deadline);
    if (lost_[at(task.number)]) return abort_job(job, now, Text::out_of_service, task.engine, wiring_.version);
    if (overload_.any() && overload_.sheds(task, now)) return drop_job(job, now, Text::shed);
    if (high_ && task.criticality != HARD) return drop_job(job, now, Text::level_dropped);
    outstanding_++;
    for (const int seat : task.seats) {
      const Job* const other = blocks_ ? seats_[at(seat)] : nullptr;
      if (other && other->slot >= 0 && other->key > job->key) job->blockers[other->slot / 64] |= uint64_t{1} << (other->slot % 64);
    }
    Job* place = ready_.last;
    while (place && place->key > job->key) place = place->previous;
    ready_.insert_after(place, job);
    waiting_[at(task.number)]++;
    change(task);
  }

  // Fill `frame` with what a job hands on: its origin and tickets, and the data that later tasks still read.
  void outcome(Job* job, Frame& frame) {
    const Task& task = *job->task;
    const Store::Size& size = books_.store.size();
    frame.release = job->given.release;
    std::copy_n(job->given.origins, size.sources, frame.origins);
    std::copy_n(job->given.tickets, size.sources, frame.tickets);
    std::fill_n(frame.data, size.data, nullptr);
    for (const int provider : wiring_.carry[at(task.number)]) {
      const int number = books_.data_number[at(provider)];
      const bool own = provider == task.provider || provider == task.replaces;
      frame.data[number] = own ? job->output : job->given.data[number];
    }
  }

  // Drop frames that will never be complete: producers deliver in order.
  void forget_older(const Task& task, int64_t number) {
    Join** place = &joins_[at(task.number)];
    while (Join* const join = *place) {
      if (join->number >= number) {
        place = &join->next;
        continue;
      }
      *place = join->next;
      finish_join(join, DROPPED);
    }
  }

  void finish_join(Join* join, Outcome outcome) {
    let_go(join->frame, outcome);
    books_.store.give(join);
  }

  // Read the latest outputs of `reads`; return false, and drop the job, if its stage lacks data it needs.
  bool sample(Job* job, Ns now) {
    const Task& task = *job->task;
    const size_t kinds = books_.store.size().data;
    for (size_t i = 0; i < task.reads.size(); i++) {
      const Latest& latest = latest_[at(task.reads[i])];
      if (latest.number < 0) continue;
      job->sampled[i] = latest.number;
      merge(job->given, latest.frame);
      for (size_t k = 0; k < kinds; k++)
        if (!job->given.data[k] && latest.frame.data[k]) {
          retain(latest.frame.data[k]);
          job->given.data[k] = latest.frame.data[k];
        }
    }
    int64_t missing = 0, bit = 1;
    for (const int provider : wiring_.needs[at(task.number)]) {
      if (!job->given.data[books_.data_number[at(provider)]]) missing |= bit;
      bit = bit < (int64_t{1} << 62) ? bit << 1 : bit;
    }
    if (!missing) return true;
    outstanding_--;
    drop_job(job, now, Text::no_data, task.number, wiring_.version, missing);
    return false;
  }

  // Whether a job should start under its stage's overload policy; sets `cheap`, or drops the job.
  bool worthwhile(Job* job, Ns now) {
    const OnOverload rule = wiring_.overload[at(job->task->number)];
    if (rule == OnOverload::none) return true;
    const OnOverload choice = Overload::choose(rule, *job->task, job->deadline - now);
    job->cheap = choice == OnOverload::degrade;
    if (choice != OnOverload::skip) return true;
    outstanding_--;
    drop_job(job, now, Text::skipped);
    return false;
  }

  // Drop the frames that do not fit a queue: the newest, or the oldest if the plan wants that.
  void overflow(const Task& task, Ns now) {
    while (!books_.settings.in_flight && waiting_[at(task.number)] > task.queue) {
      Job* victim = nullptr;
      for (Job* job = ready_.first; job; job = job->next)
        if (job->task == &task && (!victim || (job->frame > victim->frame) != task.drops_oldest)) victim = job;
      leave_queue(victim);
      outstanding_--;
      drop_job(victim, now, Text::queue_full, task.queue);
    }
  }

  void leave_queue(Job* job) {
    ready_.remove(job);
    waiting_[at(job->task->number)]--;
    change(*job->task);
  }

  // Free a job's lanes, and record the blocking time of the jobs it blocked.
  void vacate(Job* job, Ns end) {
    running_.remove(job);
    for (const int seat : seats(*job))
      if (seats_[at(seat)] == job) seats_[at(seat)] = nullptr;
    started_[at(job->task->number)] = 0;
    outstanding_--;
    if (job->slot < 0) return;
    slots_[at(job->slot)] = nullptr;
    const size_t word = at(job->slot / 64);
    const uint64_t bit = uint64_t{1} << (job->slot % 64);
    for (Job* waiting = ready_.first; waiting; waiting = waiting->next)
      if (waiting->blockers[word] & bit) {
        waiting->blockers[word] &= ~bit;
        waiting->blocking = std::max(waiting->blocking, end - waiting->activation);
      }
  }

  void note_blockers(Job* const* started, size_t count) {
    for (Job* waiting = ready_.first; waiting; waiting = waiting->next)
      for (size_t i = 0; i < count; i++) {
        const Job* const job = started[i];
        if (job->slot < 0 || job->task->engine != waiting->task->engine || !(job->key > waiting->key)) continue;
        for (const int seat : waiting->task->seats)
          if (seats_[at(seat)] == job) waiting->blockers[job->slot / 64] |= uint64_t{1} << (job->slot % 64);
      }
  }

  bool taken(const std::vector<int>& seats) const {
    for (const int seat : seats)
      if (seats_[at(seat)]) return true;
    return false;
  }

  // -1: there is none.
  int free_place(const Job& job) const {
    const auto& places = wiring_.places[at(job.task->number)];
    if (books_.settings.places == Places::thread_of_frame) {
      const int thread = static_cast<int>(job.frame % static_cast<int64_t>(places.size()));
      return taken(places[at(thread)]) ? -1 : thread;
    }
    for (size_t place = 0; place < places.size(); place++)
      if (!taken(places[place]) && (retired_.empty() || !std::count(retired_.begin(), retired_.end(), places[place]))) return static_cast<int>(place);
    return -1;
  }

  bool preemptive(const Task& task) const { return wiring_.preempts[static_cast<size_t>(task.engine)]; }

  // Collect the started jobs of preemptive engines, and free their lanes for a new assignment by urgency.
  void hold() {
    held_.clear();
    kept_ = 0;
    for (Job* job = running_.first; job; job = job->next) {
      if (!preemptive(*job->task)) continue;
      held_.push_back(job);
      for (const int seat : job->task->seats)
        if (seats_[at(seat)] == job) seats_[at(seat)] = nullptr;
    }
    std::sort(held_.begin(), held_.end(), [](const Job* a, const Job* b) { return a->key < b->key; });
  }

  // Assign lanes to the held jobs more urgent than `before`, null: to all that are left.
  void keep(const Job* before) {
    for (; kept_ < held_.size() && (!before || held_[kept_]->key < before->key); kept_++) {
      Job* const job = held_[kept_];
      if (taken(job->task->seats)) continue;
      for (const int seat : job->task->seats) seats_[at(seat)] = job;
    }
  }

  // Suspend the held jobs that lost their lanes, and resume those that regained them.
  void switch_jobs(Ns now) {
    suspended_.clear();
    resumed_.clear();
    for (Job* const job : held_) {
      const bool has_lanes = seats_[at(job->task->seats[0])] == job;
      if (has_lanes == !job->suspended) continue;
      if (has_lanes) {
        job->suspended = false;
        job->since = now;
        resumed_.push_back(job);
        continue;
      }
      const Ns begun = __atomic_load_n(&job->begun, __ATOMIC_ACQUIRE), from = std::max(begun, job->since);
      if (begun >= 0 && from < now) {
        job->ran += now - from;
        slice(job, from, now);
      }
      job->suspended = true;
      suspended_.push_back(job);
    }
  }

  // The level of a job that starts: above all jobs that it suspends or that are suspended on its lanes.
  int level(const Task& task) const {
    int found = 0;
    for (const Job* const job : held_)
      for (const int seat : job->task->seats)
        if (std::count(task.seats.begin(), task.seats.end(), seat)) found = std::max(found, job->level + 1);
    return found;
  }

  // Begin the high level: drop the waiting jobs that are not hard.
  void raise_level(const Job* by, Ns now) {
    if (high_) return;
    high_ = true;
    books_.ring.instant({now, Kind::overload, by->task->provider, by->frame, Text::level_raised});
    for (Job *job = ready_.first, *next = nullptr; job; job = next) {
      next = job->next;
      if (job->task->criticality == HARD) continue;
      leave_queue(job);
      outstanding_--;
      drop_job(job, now, Text::level_dropped);
    }
  }

  void drop_job(Job* job, Ns now, Text why, int64_t a = 0, int64_t b = 0, int64_t c = 0) {
    job->status = Status::dropped;
    books_.ring.instant({now, Kind::drop, job->task->provider, job->frame, why, a, b, c});
    let_go(job->given, DROPPED);
    retire_job(job);
  }

  void abort_job(Job* job, Ns now, Text why, int64_t a = 0, int64_t b = 0, int64_t c = 0) {
    job->status = Status::aborted;
    books_.ring.instant({now, Kind::abort, job->task->provider, job->frame, why, a, b, c});
    let_go(job->given, ABORTED);
    retire_job(job);
  }

  // Let go of the open frames and data that something holds.
  void let_go(Frame& frame, Outcome outcome) {
    const Store::Size& size = books_.store.size();
    for (size_t i = 0; i < size.sources; i++)
      if (frame.tickets[i]) books_.ledger.let_go(frame.tickets[i], outcome);
    for (size_t i = 0; i < size.data; i++) drop(frame.data[i]);
  }

  // Write its record and return its memory.
  void retire_job(Job* job) {
    constexpr size_t MOST = 64;  // sampled inputs a record holds
    int64_t words[10 + 2 * MOST] = {job->index, job->task->provider, job->frame, job->activation, job->deadline,
                                    job->start, job->finish, job->exec, job->blocking, static_cast<int64_t>(job->status)};
    size_t count = 10;
    for (size_t i = 0; i < std::min(job->task->reads.size(), MOST); i++)
      if (job->sampled[i] >= 0) {
        words[count++] = job->task->reads[i];
        words[count++] = job->sampled[i];
      }
    books_.ring.write(Record::job, words, count);
    if (job->output) drop(job->output);
    if (job->abandoned) return;  // a worker may still use a job that hangs, and its output
    job->output = nullptr;
    books_.store.give(job);
  }

  void slice(const Job* job, Ns start, Ns end) {
    const int64_t words[] = {wiring_.version, job->task->number, job->index, start, end};
    books_.ring.write(Record::slice, words, 5);
  }

  void change(const Task& task) {
    if (changed_[at(task.number)]) return;
    changed_[at(task.number)] = 1;
    changes_.push_back(task.number);
  }

  // Keep, for every source, the oldest frame of both.
  void merge(Frame& into, const Frame& from) const {
    for (size_t i = 0; i < books_.store.size().sources; i++) {
      const Origin &theirs = from.origins[i], &mine = into.origins[i];
      if (theirs.frame < 0) continue;
      if (mine.frame < 0 || theirs.frame < mine.frame || (theirs.frame == mine.frame && theirs.release < mine.release))
        into.origins[i] = theirs;
    }
  }

  const Wiring& wiring_;
  Books books_;
  Overload overload_;
  Isolation isolation_;
  JobList ready_, running_;
  std::vector<Job*> seats_, slots_;
  std::vector<Job*> held_, suspended_, resumed_;  // held: started jobs of preemptive engines, most urgent first
  size_t kept_ = 0;                         // held jobs that `pick` has passed
  std::vector<char> started_;               // by task of a preemptive engine: whether a job of it was started
  std::vector<Join*> joins_;                // by task, oldest first
  std::vector<Latest> latest_;              // by provider, where sampled
  std::vector<int64_t> waiting_;
  std::vector<char> changed_, lost_;
  std::vector<std::vector<int>> retired_;   // places whose thread hangs
  std::vector<int> changes_;
  std::vector<Origin> latest_origins_, spare_origins_;
  std::vector<Data*> latest_data_, spare_data_;
  std::vector<Ticket*> spare_tickets_;
  Frame spare_;                             // scratch of `outcome` and `release`
  int64_t outstanding_ = 0;
  bool blocks_ = true;                      // whether a less urgent job on the lanes of another counts as blocking it
  bool levels_ = false, high_ = false;      // whether the plan has levels of criticality; whether the present one is high
};

// -- events

// -- levels of criticality

// How data flow: from a job or sensor to its followers, through joins, to new jobs.

// Queues, lanes and endings: which jobs wait, which lanes are taken, and how a job leaves either.

}  // namespace socsched
