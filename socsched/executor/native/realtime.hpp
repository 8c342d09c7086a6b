// Linux real-time facilities; each returns the reason for a refusal, empty on success (socsched/runtime/conditions.py).
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <linux/futex.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "plan.hpp"

namespace socsched {

// The monotonic clock, and waiting for an instant of it.
inline Ns clock_ns(clockid_t clock) {
  timespec at;
  clock_gettime(clock, &at);
  return Ns{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
}

inline Ns monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

// The time of processors that this thread used, and all threads together.
inline Ns thread_time_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
inline Ns process_time_ns() { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

inline timespec timespec_of(Ns time) {
  return {static_cast<time_t>(time / 1'000'000'000), static_cast<long>(time % 1'000'000'000)};
}

// Sleep until an instant; a signal may end the sleep early.
inline void sleep_until(Ns time) {
  const timespec at = timespec_of(time);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

// A short wait that leaves the processor's resources to its other threads.  Hypervisors deschedule a guest that executes
// many `pause` in a row, so none is used.
inline void relax() {
#if defined(__aarch64__)
  __asm__ volatile("isb");
#else
  for (int n = 0; n < 16; n++) __asm__ volatile("nop");
#endif
}

// Where a job of several kernels stops while a more urgent one has its lanes: before its next kernel or chunk of one.

// One thread at a time closes and opens it; those of the job pass it.
class Gate {
 public:
  void close() { closed_.store(1, std::memory_order_release); }

  void open() {
    if (closed_.exchange(0)) syscall(SYS_futex, &closed_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  }

  void pass() {
    while (closed_.load(std::memory_order_acquire)) syscall(SYS_futex, &closed_, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
  }

  // The gate of the jobs that the calling thread runs, null: they are not stopped.
  static Gate*& current() {
    thread_local Gate* gate = nullptr;
    return gate;
  }

 private:
  std::atomic<uint32_t> closed_{0};
};

inline void pass_gate() {
  if (Gate* const gate = Gate::current()) gate->pass();
}

// The lock around the state of a run: a mutex with priority inheritance, so that a thread that holds it is not
// preempted by others less urgent than those that wait.  Its only system call is futex, and only if it is contended.
class Guard {
 public:
  Guard() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  ~Guard() { pthread_mutex_destroy(&mutex_); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

// Words to systemd where it started this program (sd_notify(3)): a datagram to $NOTIFY_SOCKET.

// Tell it that the run has begun ("READY=1"), or still goes on ("WATCHDOG=1"); nothing happens without systemd.
inline void tell_supervisor(const char* words) {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (!name || (name[0] != '/' && name[0] != '@') || std::strlen(name) >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, name);
  const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(name));
  if (name[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const int channel = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (channel < 0) return;
  sendto(channel, words, std::strlen(words), MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
  close(channel);
}

constexpr int FIFO_TOP = 80;  // above ordinary real-time programs, below the watchdog and migration threads of the kernel
constexpr uint64_t SHORT_NS = 100'000;

struct SchedAttr {  // the kernel's struct sched_attr
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};

inline bool set_attributes(uint32_t policy, uint64_t flags, Ns runtime, Ns deadline, Ns period) {
  const SchedAttr attributes{sizeof(SchedAttr), policy, flags, 0, 0, static_cast<uint64_t>(runtime), static_cast<uint64_t>(deadline),
                             static_cast<uint64_t>(period)};
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

// of the calling thread
inline std::string set_fifo(int priority) {
  sched_param parameters{};
  parameters.sched_priority = priority;
  if (sched_setscheduler(0, SCHED_FIFO, &parameters) == 0) return "";
  return std::string("SCHED_FIFO refused (") + std::strerror(errno) + ")";
}

// of the calling thread
inline std::string set_deadline(Ns runtime, Ns deadline, Ns period) {
  cpu_set_t before, all;
  sched_getaffinity(0, sizeof before, &before);
  CPU_ZERO(&all);
  for (long i = 0; i < std::min(sysconf(_SC_NPROCESSORS_CONF), long{CPU_SETSIZE}); i++) CPU_SET(static_cast<size_t>(i), &all);
  sched_setaffinity(0, sizeof all, &all);  // such a thread must be free to move
  if (set_attributes(6, 1, runtime, deadline, period)) return "";
  const std::string reason = std::strerror(errno);
  sched_setaffinity(0, sizeof before, &before);
  return "SCHED_DEADLINE refused (" + reason + ")";
}

inline std::string lock_memory() {
  rlimit limit;
  if (geteuid() != 0 && (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY))
    return "memory not locked: the limit is below what the process needs (`ulimit -l unlimited`)";
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return std::string("memory not locked (") + std::strerror(errno) + ")";
  return "";
}

// the calling thread
inline std::string pin(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors)
    if (processor >= 0 && processor < CPU_SETSIZE) CPU_SET(static_cast<size_t>(processor), &set);
  if (CPU_COUNT(&set) == 0 || sched_setaffinity(0, sizeof set, &set) == 0) return "";
  return std::string("not pinned to its processors: ") + std::strerror(errno);
}

// of the calling thread: fire when due, not 50 us later
inline void fine_timers() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

// of the calling thread, if it is an ordinary one
inline void short_turns() {
  if (sched_getscheduler(0) == SCHED_OTHER) set_attributes(SCHED_OTHER, 0, SHORT_NS, 0, 0);
}

// no trimming, no mapping of large blocks
inline void keep_memory() {
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_MMAP_MAX, 0);
}

// The SCHED_FIFO priority of a worker by its most urgent task: 80 for the plan's first, then downwards.
inline int fifo_priority(const std::vector<const Task*>& tasks, const Plan& plan) {
  std::set<std::pair<int64_t, Ns>> urgency;
  for (const Task& task : plan.tasks) urgency.emplace(task.priority, task.deadline);
  int best = FIFO_TOP - 1;
  for (const Task* task : tasks)
    best = std::min(best, static_cast<int>(std::distance(urgency.begin(), urgency.find({task->priority, task->deadline}))));
  return std::max(FIFO_TOP - best, 1);
}

// The scheduling class of workers that use some processors: off, fifo or deadline, and a notice in words.
inline std::string choose_class(const std::string& wanted, size_t processors, std::string& notice) {
  if (wanted == "off") return "off";
  std::string refused;
  std::thread([&] { refused = set_fifo(1); }).join();
  if (!refused.empty()) {
    notice = "no real-time scheduling: " + refused + "; allow it with `ulimit -r 99` or CAP_SYS_NICE";
    return "off";
  }
  cpu_set_t usable;
  sched_getaffinity(0, sizeof usable, &usable);
  if (wanted == "auto" && processors >= static_cast<size_t>(CPU_COUNT(&usable))) {
    notice = "no real-time scheduling: the plan uses every processor; force it with --realtime fifo";
    return "off";
  }
  return wanted == "auto" ? "fifo" : wanted;
}

}  // namespace socsched
