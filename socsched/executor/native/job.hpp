// Jobs and the frames handed to them, in memory allocated before the run.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "failure.hpp"
#include "plan.hpp"
#include "tensor.hpp"

namespace socsched {

// Objects allocated before the run and handed out during it, so that nothing is allocated on the path of a job.
template <class T>
class Pool {
 public:
  // `make` prepares each of the `count` objects once.
  template <class Make>
  void fill(size_t count, Make make) {
    objects_.resize(count);
    free_.reserve(count);
    for (size_t i = count; i-- > 0;) {
      make(objects_[i]);
      free_.push_back(&objects_[i]);
    }
  }

  // Return an object, or null if all are in use.
  T* take() {
    if (free_.empty()) return nullptr;
    T* const object = free_.back();
    free_.pop_back();
    return object;
  }

  void give(T* object) { free_.push_back(object); }  // within the reserved capacity
  size_t left() const { return free_.size(); }

 private:
  std::vector<T> objects_;
  std::vector<T*> free_;
};

// Frame accounting: released = completed + dropped + aborted, kept during the run and checked at its end.
//
// A frame is open while a job runs or waits to run on its data, or a join holds it for its partners.  Each of these
// holds the frame's ticket; the frame is booked once, when the last hold is released.

enum Outcome { COMPLETED = 0, DROPPED = 1, ABORTED = 2 };  // the worst of a frame's parts counts

constexpr int MOST_GROUPS = 128;

struct Ticket {
  int source = 0, holds = 0, group = 0;
  Outcome outcome = COMPLETED;
  Ticket *previous = nullptr, *next = nullptr;  // among the open tickets
};

struct Account {
  int64_t released = 0, booked[3] = {0, 0, 0};
};

class Ledger {
 public:
  int64_t jobs = 0;  // created so far

  Ledger(int sources, size_t tickets) : accounts_(static_cast<size_t>(sources)) {
    tickets_.fill(tickets, [](Ticket&) {});
  }

  // Open a frame with one hold, owned by the caller; null, with the frame dropped, if there is no room for another.
  Ticket* release(int source) {
    Account& account = accounts_[static_cast<size_t>(source)];
    account.released++;
    Ticket* const ticket = tickets_.take();
    if (!ticket) {
      account.booked[DROPPED]++;
      return nullptr;
    }
    if (group_sizes_[static_cast<size_t>(group_)]++ == 0) open_groups_++;
    *ticket = {source, 1, group_, COMPLETED, nullptr, open_};
    if (open_) open_->previous = ticket;
    open_ = ticket;
    return ticket;
  }

  void lose(int source) {
    accounts_[static_cast<size_t>(source)].released++;
    accounts_[static_cast<size_t>(source)].booked[DROPPED]++;
  }

  void let_go(Ticket* ticket, Outcome outcome = COMPLETED) {
    ticket->outcome = std::max(ticket->outcome, outcome);
    if (--ticket->holds == 0) close(ticket);
  }

  // Book every frame still open as aborted at the end of the run.
  void settle() {
    while (open_) {
      open_->outcome = ABORTED;
      close(open_);
    }
  }

  // Frames released from here on form a group, which is open as long as one of them is.
  void begin_group() {
    do group_ = (group_ + 1) % MOST_GROUPS;
    while (group_sizes_[static_cast<size_t>(group_)]);
  }
  int open_groups() const { return open_groups_; }

  const std::vector<Account>& accounts() const { return accounts_; }
  bool idle() const { return !open_; }

 private:
  void close(Ticket* ticket) {
    accounts_[static_cast<size_t>(ticket->source)].booked[ticket->outcome]++;
    (ticket->previous ? ticket->previous->next : open_) = ticket->next;
    if (ticket->next) ticket->next->previous = ticket->previous;
    if (--group_sizes_[static_cast<size_t>(ticket->group)] == 0) open_groups_--;
    tickets_.give(ticket);
  }

  std::vector<Account> accounts_;
  Pool<Ticket> tickets_;
  Ticket* open_ = nullptr;
  std::array<int64_t, MOST_GROUPS> group_sizes_{};  // open frames
  int group_ = 0, open_groups_ = 0;
};

// What happens in a run, as flat words in a ring: written where it happens, formatted later by another thread.
//
// One thread at a time writes (the guard of the run is held), one reads.  Writing neither allocates nor waits: if the
// ring is full, a record is counted as lost.

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

  // A step of a counter; its name is `prefix` + name, see journal.hpp.
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

// The outputs of one job, or one frame of a sensor; shared by all that may still read them.
struct Data {
  std::vector<Tensor> ports;
  int users = 0;
  std::vector<Data*>* home = nullptr;  // where it returns to when it has no users; null: it is never reused
  Data* holds = nullptr;               // whose memory its tensors lie in, until it has no users
  void* frame = nullptr;               // of a stage that starts others with it: their tensors (cuda_frame.hpp)
};

struct Origin {
  int64_t frame = -1;  // of the oldest data of a source; -1: none
  Ns release = 0;
};

// A frame on its way: the release deadlines count from, the sources of its data, the data, the open frames it holds.
struct Frame {
  Ns release = 0;
  Origin* origins = nullptr;  // by source
  Data** data = nullptr;      // by number of `Store::data_number`, null where absent
  Ticket** tickets = nullptr; // by source, null where absent
};

// Frames of the same number that wait at a task for those of its other inputs.
struct Join {
  int64_t number = 0;
  size_t arrived = 0;
  Frame frame;
  Join* next = nullptr;
};

struct Job {
  const Task* task = nullptr;
  int version = 0;          // of the plan it belongs to
  int64_t index = 0, frame = 0;
  Ns activation = 0, deadline = 0, start = -1, finish = -1, exec = 0, blocking = 0;
  Status status = Status::unfinished;
  Key key{};
  Frame given;
  int64_t* sampled = nullptr;   // by position in `Task::reads`: the frame read, -1 where there was none
  uint64_t* blockers = nullptr; // a bit for every slot of a running job that blocks it
  bool cheap = false;           // it runs the cheaper variant of its stage
  bool is_void = false;         // its plan was replaced while it ran: its outputs are unused
  bool abandoned = false;       // it hangs: its end, if it comes, is ignored
  bool seen_overrun = false, seen_late = false;
  Ns begun = -1;                // when a worker began it
  Ns since = 0, ran = 0;        // start of its execution interval; execution time in the intervals before
  bool suspended = false;       // a more urgent job has taken its lanes
  int place = 0;                // which of the places of its task it runs on
  int level = 0;                // number of suspended jobs below it on its lanes
  int slot = -1;                // number among the running jobs that others do not preempt, -1: none
  Job *previous = nullptr, *next = nullptr;  // in the ready or running list
  Data* output = nullptr;       // where its stage writes

  // The execution time until `now`, for a job begun at `start`, -1: not yet.
  Ns executed(Ns start, Ns now) const { return suspended || start < 0 ? ran : ran + std::max(now - std::max(start, since), Ns{0}); }
};

// A doubly linked list of jobs.
struct JobList {
  Job *first = nullptr, *last = nullptr;

  void insert_after(Job* place, Job* job) {  // null: at the front
    job->previous = place;
    job->next = place ? place->next : first;
    (job->next ? job->next->previous : last) = job;
    (place ? place->next : first) = job;
  }

  void remove(Job* job) {
    (job->previous ? job->previous->next : first) = job->next;
    (job->next ? job->next->previous : last) = job->previous;
    job->previous = job->next = nullptr;
  }
};

// The memory of all jobs and joins of a run.
class Store {
 public:
  struct Size {
    size_t jobs = 0, joins = 0, sources = 0, data = 0, reads = 0, seats = 0;
  };

  // Failure if a plan is so large that this would take more than 1 GiB
  explicit Store(const Size& size) : size_(size) {
    const size_t frames = size.jobs + size.joins;
    const double bytes = static_cast<double>(frames) * static_cast<double>(size.sources * 24 + size.data * 8) +
                         static_cast<double>(size.jobs) * static_cast<double>(size.reads * 8 + size.seats / 8 + sizeof(Job));
    if (bytes > double{1 << 30})
      throw Failure(USAGE, "the plan is too large for the native executor: its jobs would take more than 1 GiB",
                    "use fewer tasks or shorter queues");
    origins_.resize(frames * size.sources);
    data_.resize(frames * size.data);
    tickets_.resize(frames * size.sources);
    sampled_.resize(size.jobs * size.reads);
    blockers_.resize(size.jobs * words());
    jobs_.fill(size.jobs, [this](Job& job) {
      lay(job.given);
      job.sampled = sampled_.data() + jobs_laid_ * size_.reads;
      job.blockers = blockers_.data() + jobs_laid_ * words();
      jobs_laid_++;
    });
    joins_.fill(size.joins, [this](Join& join) { lay(join.frame); });
  }

  // A fresh job, null if there is no room.
  Job* job() {
    Job* const job = jobs_.take();
    if (!job) return nullptr;
    const Frame frame = job->given;
    int64_t* const sampled = job->sampled;
    uint64_t* const blockers = job->blockers;
    *job = Job{};
    job->given = frame;
    job->sampled = sampled;
    job->blockers = blockers;
    std::fill_n(sampled, size_.reads, -1);
    std::fill_n(blockers, words(), 0);
    return job;
  }

  Join* join() {
    Join* const join = joins_.take();
    if (!join) return nullptr;
    std::fill_n(join->frame.origins, size_.sources, Origin{});
    std::fill_n(join->frame.tickets, size_.sources, nullptr);
    std::fill_n(join->frame.data, size_.data, nullptr);
    join->arrived = 0;
    join->next = nullptr;
    return join;
  }

  void give(Job* job) { jobs_.give(job); }
  void give(Join* join) { joins_.give(join); }
  const Size& size() const { return size_; }
  size_t words() const { return (size_.seats + 63) / 64; }  // of `Job::blockers`

 private:
  void lay(Frame& frame) {
    frame.origins = origins_.data() + frames_laid_ * size_.sources;
    frame.tickets = tickets_.data() + frames_laid_ * size_.sources;
    frame.data = data_.data() + frames_laid_ * size_.data;
    frames_laid_++;
  }

  Size size_;
  Pool<Job> jobs_;
  Pool<Join> joins_;
  std::vector<Origin> origins_;
  std::vector<Data*> data_;
  std::vector<Ticket*> tickets_;
  std::vector<int64_t> sampled_;
  std::vector<uint64_t> blockers_;
  size_t frames_laid_ = 0, jobs_laid_ = 0;
};

inline void retain(Data* data) {
  if (data) data->users++;
}

inline void drop(Data* data) {
  while (data && --data->users == 0) {
    Data* const held = data->holds;
    data->holds = nullptr;
    if (data->home) data->home->push_back(data);  // within the reserved capacity
    data = held;
  }
}

}  // namespace socsched
