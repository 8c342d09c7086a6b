// Linux real-time facilities; each returns the reason for a refusal, empty on success (socsched/runtime/realtime.py).
#pragma once

#include <string>
#include <vector>

#include "plan.hpp"

namespace socsched {

std::string set_fifo(int priority);                            // of the calling thread
std::string set_deadline(Ns runtime, Ns deadline, Ns period);  // of the calling thread
std::string lock_memory();
std::string pin(const std::vector<int>& processors);           // the calling thread
void fine_timers();                                            // of the calling thread: fire when due, not 50 us later
void short_turns();                                            // of the calling thread, if it is an ordinary one
void keep_memory();                                            // no trimming, no mapping of large blocks

// The SCHED_FIFO priority of a worker by its most urgent task: 80 for the plan's first, then downwards.
int fifo_priority(const std::vector<const Task*>& tasks, const Plan& plan);

// The scheduling class of workers that use some processors: off, fifo or deadline, and a notice in words.
std::string choose_class(const std::string& wanted, size_t processors, std::string& notice);

}  // namespace socsched
