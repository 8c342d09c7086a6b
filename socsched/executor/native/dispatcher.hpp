// Which jobs are ready, which may start, which are dropped, and where data flows: the state of one running plan.
//
// A job needs all lanes of one of its places.  Ready jobs are served in the order of their policy, and those of lower
// priority fill lanes that a waiting one cannot use yet: the simulator's rule, for which the bounds of the analysis hold,
// and which a run on a virtual clock must equal job by job.  Nothing here waits, allocates or reads a clock: callers
// report releases and finished jobs with their times, and ask for the jobs to start.  One thread at a time.
#pragma once

#include <vector>

#include "isolation.hpp"
#include "job.hpp"
#include "ledger.hpp"
#include "records.hpp"
#include "wiring.hpp"

namespace socsched {

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
  Dispatcher(const Wiring& wiring, Books books);

  // -- events

  void release(int provider, int64_t frame, Ns release, Ns now, Data* data);
  void lose(int provider, int64_t frame, Ns release, Text why, int64_t a = 0);  // a frame that arrived but cannot be used

  // Take the jobs that start now, most urgent first, at most one for every lane; `tidy` must follow.  Return their number.
  // Started jobs that lose or regain their lanes are in `suspended` and `resumed` until the next call.
  size_t pick(Ns now, Job** started);
  const std::vector<Job*>& suspended() const { return suspended_; }
  const std::vector<Job*>& resumed() const { return resumed_; }
  void tidy(Ns now);  // drop jobs that no longer fit the queues, and record the queue depths

  void ended(Job* job, Ns start, Ns end);
  enum class Abandon { unfinished, aborted };
  // Stop a started job that failed or hangs; if it is to be aborted, the text says why.
  void abandon(Job* job, Ns start, Ns end, Abandon how, Text why = Text::failed, int64_t a = 0, int64_t b = 0, int64_t c = 0);
  void retire(const std::vector<int>& seats, Ns now);  // abort the frames that need a task on exactly these lanes from now on
  void close(Ns now);                                  // another plan takes over
  void inherit(const Dispatcher& other);               // take over the latest data of another plan
  void settle();                                       // end the run

  // The earliest instant at which a running job can raise the level of criticality, INT64_MAX: none can.
  Ns next_overrun() const;
  void check_overruns(Ns now);  // raise the level if a running job has run for longer than planned

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

  void deliver(int provider, int64_t number, const Frame& frame, Ns now);
  void hand(const Task& task, int64_t number, const Frame& frame, Ns now);
  void activate(const Task& task, int64_t number, const Frame& frame, Ns now);  // takes over its holds and data
  void outcome(Job* job, Frame& frame);
  void forget_older(const Task& task, int64_t number);
  void finish_join(Join* join, Outcome outcome);
  bool sample(Job* job, Ns now);
  bool worthwhile(Job* job, Ns now);
  void overflow(const Task& task, Ns now);
  void leave_queue(Job* job);
  void vacate(Job* job, Ns end);
  void note_blockers(Job* const* started, size_t count);
  bool taken(const std::vector<int>& seats) const;
  int free_place(const Job& job) const;  // -1: there is none
  bool preemptive(const Task& task) const { return wiring_.preempts[static_cast<size_t>(task.engine)]; }
  void hold();
  void keep(const Job* before);
  void switch_jobs(Ns now);
  int level(const Task& task) const;
  void raise_level(const Job* job, Ns now);
  void drop_job(Job* job, Ns now, Text why, int64_t a = 0, int64_t b = 0, int64_t c = 0);
  void abort_job(Job* job, Ns now, Text why, int64_t a = 0, int64_t b = 0, int64_t c = 0);
  void let_go(Frame& frame, Outcome outcome);
  void retire_job(Job* job);  // write its record and return its memory
  void slice(const Job* job, Ns start, Ns end);
  void change(const Task& task);
  void merge(Frame& into, const Frame& from) const;

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

}  // namespace socsched
