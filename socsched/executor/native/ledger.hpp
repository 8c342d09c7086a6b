// Frame accounting: released = completed + dropped + aborted, kept during the run and checked at its end.
//
// A frame is open while a job runs or waits to run on its data, or a join holds it for its partners.  Each of these
// holds the frame's ticket; the frame is booked once, when the last hold is released.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "pool.hpp"

namespace socsched {

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

}  // namespace socsched
