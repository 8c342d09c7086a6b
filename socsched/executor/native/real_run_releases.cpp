// Releases of frames at absolute times: by the idle worker whose job is first, otherwise by the release thread.
#include <algorithm>
#include <mutex>
#include <pthread.h>

#include "real_run.hpp"
#include "realtime.hpp"

namespace socsched {

namespace {

constexpr Ns CLAIM = 100'000;  // how long before a release it is decided which thread makes it
constexpr Ns GRACE = 100'000;  // how long the release thread waits for a worker that is to make a release
constexpr Ns DOZE = 500'000;  // the same where it then wakes for the next release only, which saves a wake-up a frame
constexpr int RELEASE_PRIORITY = 90;

}  // namespace

// The next release whose first job is the worker's own, monotonic; -1: none.
Ns RealRun::alarm(const Worker& worker) const {
  if (worker.version != version_.load(std::memory_order_relaxed)) return -1;
  Ns first = NEVER;
  for (const int row : worker.rows) first = std::min(first, next_release_[static_cast<size_t>(row)].load(std::memory_order_acquire));
  return first == NEVER || first == 0 ? -1 : first;
}

// Let all threads know when frames are released next, with the guard held.
void RealRun::announce_releases() {
  for (size_t row = 0; row < timetable_.rows().size(); row++) {
    const Ns next = timetable_.rows()[row].next();
    const bool comes = next < control_.settings().horizon && !control_.over() && !control_.settings().in_flight && !live_;
    const Ns earliest = feeds_ready(next) ? 0 : monotonic_ns() + MS / 2;  // to look again for data that have not come
    next_release_[row].store(comes ? std::max(origin_ + next, earliest) : NEVER, std::memory_order_release);
  }
}

void RealRun::release_frame(int provider, int64_t frame, Ns nominal, Ns now) {
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

// Release a frame of a live feed, in the thread of the feed; deadlines count from its arrival.
void RealRun::arrive(int provider, const Feed::Frame& frame) {
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
bool RealRun::feeds_ready(Ns instant) const {
  return std::all_of(timetable_.rows().begin(), timetable_.rows().end(), [&](const Timetable::Row& row) {
    const auto& feed = feeds_[static_cast<size_t>(row.provider)];
    return !feed || row.next() != instant || feed->ready();
  });
}

bool RealRun::feeds_ended() const {
  return std::all_of(feeds_.begin(), feeds_.end(), [](const auto& feed) { return !feed || feed->ended(); });
}

// Release the next frames while fewer than allowed are in progress, with the guard held; without effect at planned rates.
void RealRun::release_more(Ns time) {
  while (time >= 0 && control_.ledger().open_groups() < control_.settings().in_flight && !control_.over()) {
    const Ns instant = timetable_.next();
    if (instant < 0 || !feeds_ready(instant)) return;
    control_.begin_group();
    timetable_.take(instant, [&](int provider, int64_t frame) { release_frame(provider, frame, time, time); });
    control_.dispatch(time);
  }
}

bool RealRun::frames_left() {
  std::lock_guard<Guard> lock(guard_);
  return timetable_.next() >= 0;
}

// Release all frames that are due, and start their first jobs.
void RealRun::release_due(Worker* worker) {
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

// Whether an idle worker will make a release itself, since its first job is its own.
bool RealRun::claimed(Ns instant) const {
  for (const auto& worker : workers_) {
    if (!worker->claims.load(std::memory_order_relaxed)) continue;
    for (const int row : worker->rows)
      if (next_release_[static_cast<size_t>(row)].load(std::memory_order_relaxed) == instant) return true;
  }
  return false;
}

// The first release after the next one, monotonic.
Ns RealRun::following(Ns next) const {
  Ns first = NEVER;
  for (size_t row = 0; row < next_release_.size(); row++) {
    const Ns at = next_release_[row].load(std::memory_order_relaxed);
    if (at != NEVER) first = std::min(first, at == next ? at + timetable_.rows()[row].period : at);
  }
  return first;
}

void RealRun::release_loop() {
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

}  // namespace socsched
