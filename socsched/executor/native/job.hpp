// Jobs and the frames handed to them, in memory allocated before the run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ledger.hpp"
#include "order.hpp"
#include "plan.hpp"
#include "pool.hpp"
#include "records.hpp"
#include "tensor.hpp"

namespace socsched {

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

  explicit Store(const Size& size);  // Failure if a plan is so large that this would take more than 1 GiB

  Job* job();                        // a fresh job, null if there is no room
  Join* join();
  void give(Job* job) { jobs_.give(job); }
  void give(Join* join) { joins_.give(join); }
  const Size& size() const { return size_; }
  size_t words() const { return (size_.seats + 63) / 64; }  // of `Job::blockers`

 private:
  void lay(Frame& frame);

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
