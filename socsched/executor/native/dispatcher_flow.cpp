// How data flow: from a job or sensor to its followers, through joins, to new jobs.
#include <algorithm>

#include "dispatcher.hpp"

namespace socsched {

// Fill `frame` with what a job hands on: its origin and tickets, and the data that later tasks still read.
void Dispatcher::outcome(Job* job, Frame& frame) {
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

void Dispatcher::deliver(int provider, int64_t number, const Frame& frame, Ns now) {
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
void Dispatcher::hand(const Task& task, int64_t number, const Frame& frame, Ns now) {
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

// Keep, for every source, the oldest frame of both.
void Dispatcher::merge(Frame& into, const Frame& from) const {
  for (size_t i = 0; i < books_.store.size().sources; i++) {
    const Origin &theirs = from.origins[i], &mine = into.origins[i];
    if (theirs.frame < 0) continue;
    if (mine.frame < 0 || theirs.frame < mine.frame || (theirs.frame == mine.frame && theirs.release < mine.release))
      into.origins[i] = theirs;
  }
}

// Drop frames that will never be complete: producers deliver in order.
void Dispatcher::forget_older(const Task& task, int64_t number) {
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

void Dispatcher::finish_join(Join* join, Outcome outcome) {
  let_go(join->frame, outcome);
  books_.store.give(join);
}

void Dispatcher::activate(const Task& task, int64_t number, const Frame& frame, Ns now) {
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

}  // namespace socsched
