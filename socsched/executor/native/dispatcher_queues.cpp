// Queues, lanes and endings: which jobs wait, which lanes are taken, and how a job leaves either.
#include <algorithm>

#include "dispatcher.hpp"

namespace socsched {

void Dispatcher::change(const Task& task) {
  if (changed_[at(task.number)]) return;
  changed_[at(task.number)] = 1;
  changes_.push_back(task.number);
}

void Dispatcher::leave_queue(Job* job) {
  ready_.remove(job);
  waiting_[at(job->task->number)]--;
  change(*job->task);
}

// Read the latest outputs of `reads`; return false, and drop the job, if its stage lacks data it needs.
bool Dispatcher::sample(Job* job, Ns now) {
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
bool Dispatcher::worthwhile(Job* job, Ns now) {
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
void Dispatcher::overflow(const Task& task, Ns now) {
  while (!books_.settings.in_flight && waiting_[at(task.number)] > task.queue) {
    Job* victim = nullptr;
    for (Job* job = ready_.first; job; job = job->next)
      if (job->task == &task && (!victim || (job->frame > victim->frame) != task.drops_oldest)) victim = job;
    leave_queue(victim);
    outstanding_--;
    drop_job(victim, now, Text::queue_full, task.queue);
  }
}

bool Dispatcher::taken(const std::vector<int>& seats) const {
  for (const int seat : seats)
    if (seats_[at(seat)]) return true;
  return false;
}

int Dispatcher::free_place(const Job& job) const {
  const auto& places = wiring_.places[at(job.task->number)];
  if (books_.settings.places == Places::thread_of_frame) {
    const int thread = static_cast<int>(job.frame % static_cast<int64_t>(places.size()));
    return taken(places[at(thread)]) ? -1 : thread;
  }
  for (size_t place = 0; place < places.size(); place++)
    if (!taken(places[place]) && (retired_.empty() || !std::count(retired_.begin(), retired_.end(), places[place]))) return static_cast<int>(place);
  return -1;
}

// Free a job's lanes, and record the blocking time of the jobs it blocked.
void Dispatcher::vacate(Job* job, Ns end) {
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

void Dispatcher::note_blockers(Job* const* started, size_t count) {
  for (Job* waiting = ready_.first; waiting; waiting = waiting->next)
    for (size_t i = 0; i < count; i++) {
      const Job* const job = started[i];
      if (job->slot < 0 || job->task->engine != waiting->task->engine || !(job->key > waiting->key)) continue;
      for (const int seat : waiting->task->seats)
        if (seats_[at(seat)] == job) waiting->blockers[job->slot / 64] |= uint64_t{1} << (job->slot % 64);
    }
}

void Dispatcher::drop_job(Job* job, Ns now, Text why, int64_t a, int64_t b, int64_t c) {
  job->status = Status::dropped;
  books_.ring.instant({now, Kind::drop, job->task->provider, job->frame, why, a, b, c});
  let_go(job->given, DROPPED);
  retire_job(job);
}

void Dispatcher::abort_job(Job* job, Ns now, Text why, int64_t a, int64_t b, int64_t c) {
  job->status = Status::aborted;
  books_.ring.instant({now, Kind::abort, job->task->provider, job->frame, why, a, b, c});
  let_go(job->given, ABORTED);
  retire_job(job);
}

// Let go of the open frames and data that something holds.
void Dispatcher::let_go(Frame& frame, Outcome outcome) {
  const Store::Size& size = books_.store.size();
  for (size_t i = 0; i < size.sources; i++)
    if (frame.tickets[i]) books_.ledger.let_go(frame.tickets[i], outcome);
  for (size_t i = 0; i < size.data; i++) drop(frame.data[i]);
}

void Dispatcher::retire_job(Job* job) {
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

void Dispatcher::slice(const Job* job, Ns start, Ns end) {
  const int64_t words[] = {wiring_.version, job->task->number, job->index, start, end};
  books_.ring.write(Record::slice, words, 5);
}

}  // namespace socsched
