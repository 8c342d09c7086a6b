#include "dispatcher.hpp"

#include <algorithm>

namespace socsched {

Dispatcher::Dispatcher(const Wiring& wiring, Books books)
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

void Dispatcher::release(int provider, int64_t number, Ns release, Ns now, Data* data) {
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

void Dispatcher::lose(int provider, int64_t number, Ns release, Text why, int64_t a) {
  const int source = books_.sources.of(provider);
  isolation_.released(source, release);
  books_.ring.release(provider, release);
  books_.ring.instant({release, Kind::input, provider, number, why, a});
  books_.ring.instant({release, Kind::drop, provider, number, Text::lost_frame});
  books_.ledger.lose(source);
}

size_t Dispatcher::pick(Ns now, Job** started) {
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

// Collect the started jobs of preemptive engines, and free their lanes for a new assignment by urgency.
void Dispatcher::hold() {
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
void Dispatcher::keep(const Job* before) {
  for (; kept_ < held_.size() && (!before || held_[kept_]->key < before->key); kept_++) {
    Job* const job = held_[kept_];
    if (taken(job->task->seats)) continue;
    for (const int seat : job->task->seats) seats_[at(seat)] = job;
  }
}

// Suspend the held jobs that lost their lanes, and resume those that regained them.
void Dispatcher::switch_jobs(Ns now) {
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
int Dispatcher::level(const Task& task) const {
  int found = 0;
  for (const Job* const job : held_)
    for (const int seat : job->task->seats)
      if (std::count(task.seats.begin(), task.seats.end(), seat)) found = std::max(found, job->level + 1);
  return found;
}

void Dispatcher::tidy(Ns now) {
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

void Dispatcher::ended(Job* job, Ns start, Ns end) {
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

void Dispatcher::abandon(Job* job, Ns start, Ns end, Abandon how, Text why, int64_t a, int64_t b, int64_t c) {
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

void Dispatcher::retire(const std::vector<int>& seats, Ns now) {
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

void Dispatcher::close(Ns now) {
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

void Dispatcher::inherit(const Dispatcher& other) {
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

void Dispatcher::settle() {
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

// -- levels of criticality

Ns Dispatcher::next_overrun() const {
  Ns next = INT64_MAX;
  if (!levels_ || high_) return next;
  for (const Job* job = running_.first; job; job = job->next) {
    if (!job->task->high || job->is_void || job->suspended) continue;
    const Ns begun = __atomic_load_n(&job->begun, __ATOMIC_ACQUIRE);
    next = std::min(next, std::max(begun, job->since) + job->task->wcet - job->ran);
  }
  return next;
}

void Dispatcher::check_overruns(Ns now) {
  if (!levels_ || high_) return;
  const Job* by = nullptr;
  for (const Job* job = running_.first; job; job = job->next) {
    const Ns begun = __atomic_load_n(&job->begun, __ATOMIC_ACQUIRE);
    if (!job->task->high || job->is_void || begun < 0 || job->executed(begun, now) < job->task->wcet) continue;
    if (!by || job->index < by->index) by = job;
  }
  if (by) raise_level(by, now);
}

// Begin the high level: drop the waiting jobs that are not hard.
void Dispatcher::raise_level(const Job* by, Ns now) {
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

}  // namespace socsched
