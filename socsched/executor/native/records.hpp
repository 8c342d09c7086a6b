// What happens in a run, as flat words in a ring: written where it happens, formatted later by another thread.
//
// One thread at a time writes (the guard of the run is held), one reads.  Writing neither allocates nor waits: if the
// ring is full, a record is counted as lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plan.hpp"

namespace socsched {

enum class Record : int64_t { job, slice, instant, release, counter };

enum class Status : int64_t { unfinished, done, dropped, aborted };

// The texts of instants; a, b and c are numbers in them, and names are numbers of `Names`.
enum class Text : int64_t {
  lost_dropout,      // dropout, as specified in the faults file
  lost_frame,        // frame lost: its data cannot be used
  queue_full,        // a frames wait already
  no_data,           // no data from NAMES yet; a: the task whose needs are unmet, b: number of its plan, c: unmet ones
  skipped,           // skipped: it would have been late
  shed,              // shed: more critical stages miss their deadlines
  work_shed,         // less critical work shed
  too_late,          // too late to be useful
  late,              // a ns late
  replaced,          // its plan was replaced
  replaced_running,  // its plan was replaced while it ran
  out_of_service,    // engine a of plan b is out of service
  still_running,     // still running at its deadline
  grew,              // its queue grew from a to b in c periods
  hangs,             // TASK a has run for b ns, c ns planned
  hangs_alone,       // ... ; no plan can take over
  hangs_replaced,    // ... ; its engine is out of service, another plan takes over; a: plan << 20 | task
  failed,            // message number a
  failed_replaced,   // message number a; engine b of plan c is out of service, another plan takes over
  no_room,           // more jobs than the executor has room for
  interrupted,       // interrupted by the user
  records_lost,      // a records lost
  level_raised,      // over its time: the high level of criticality begins
  level_dropped,     // dropped at the high level of criticality
};

enum class Kind : int64_t { miss, drop, abort, input, fault, overload, late };

struct Instant {
  Ns time;
  Kind kind;
  int subject;  // a name; -1: run
  int64_t frame;
  Text text;
  int64_t a = 0, b = 0, c = 0;
};

class Ring {
 public:
  explicit Ring(size_t words) : words_(words), mask_(words - 1) {}  // a power of two

  // Write a record of `count` words after its head.
  void write(Record kind, const int64_t* words, size_t count) {
    const uint64_t at = written_.load(std::memory_order_relaxed);
    if (at + count + 1 - read_.load(std::memory_order_acquire) > words_.size()) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    put(at, static_cast<int64_t>(count) << 8 | static_cast<int64_t>(kind));
    for (size_t i = 0; i < count; i++) put(at + 1 + i, words[i]);
    written_.store(at + count + 1, std::memory_order_release);
  }

  // Read the next record into `words` (without its head) and return whether there was one.
  bool read(Record& kind, std::vector<int64_t>& words) {
    const uint64_t at = read_.load(std::memory_order_relaxed);
    if (at == written_.load(std::memory_order_acquire)) return false;
    const int64_t head = words_[at & mask_];
    const size_t count = static_cast<size_t>(head >> 8);
    kind = static_cast<Record>(head & 255);
    words.resize(count);
    for (size_t i = 0; i < count; i++) words[i] = words_[(at + 1 + i) & mask_];
    read_.store(at + count + 1, std::memory_order_release);
    return true;
  }

  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

  void instant(const Instant& entry) {
    const int64_t words[] = {entry.time, static_cast<int64_t>(entry.kind), entry.subject, entry.frame,
                             static_cast<int64_t>(entry.text), entry.a, entry.b, entry.c};
    write(Record::instant, words, 8);
  }

  void release(int provider, Ns time) {
    const int64_t words[] = {provider, time};
    write(Record::release, words, 2);
  }

  // A step of a counter; its name is `prefix` + name, see journal.cpp.
  void counter(int64_t prefix, int provider, Ns time, double value) {
    int64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const int64_t words[] = {prefix, provider, time, bits};
    write(Record::counter, words, 4);
  }

 private:
  void put(uint64_t at, int64_t word) { words_[at & mask_] = word; }

  std::vector<int64_t> words_;
  uint64_t mask_;
  std::atomic<uint64_t> written_{0}, read_{0}, lost_{0};
};

enum CounterPrefix : int64_t { QUEUE_DEPTH, OVERRUNS, RELEASE_LATE };

}  // namespace socsched
