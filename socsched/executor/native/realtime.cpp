#include "realtime.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <malloc.h>
#include <sched.h>
#include <set>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace socsched {

namespace {

constexpr int FIFO_TOP = 80;  // above ordinary real-time programs, below the watchdog and migration threads of the kernel
constexpr uint64_t SHORT_NS = 100'000;

struct SchedAttr {  // the kernel's struct sched_attr
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};

bool set_attributes(uint32_t policy, uint64_t flags, Ns runtime, Ns deadline, Ns period) {
  const SchedAttr attributes{sizeof(SchedAttr), policy, flags, 0, 0, static_cast<uint64_t>(runtime), static_cast<uint64_t>(deadline),
                             static_cast<uint64_t>(period)};
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

}  // namespace

std::string set_fifo(int priority) {
  sched_param parameters{};
  parameters.sched_priority = priority;
  if (sched_setscheduler(0, SCHED_FIFO, &parameters) == 0) return "";
  return std::string("SCHED_FIFO refused (") + std::strerror(errno) + ")";
}

std::string set_deadline(Ns runtime, Ns deadline, Ns period) {
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

std::string lock_memory() {
  rlimit limit;
  if (geteuid() != 0 && (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY))
    return "memory not locked: the limit is below what the process needs (`ulimit -l unlimited`)";
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return std::string("memory not locked (") + std::strerror(errno) + ")";
  return "";
}

std::string pin(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors)
    if (processor >= 0 && processor < CPU_SETSIZE) CPU_SET(static_cast<size_t>(processor), &set);
  if (CPU_COUNT(&set) == 0 || sched_setaffinity(0, sizeof set, &set) == 0) return "";
  return std::string("not pinned to its processors: ") + std::strerror(errno);
}

void fine_timers() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

void short_turns() {
  if (sched_getscheduler(0) == SCHED_OTHER) set_attributes(SCHED_OTHER, 0, SHORT_NS, 0, 0);
}

void keep_memory() {
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_MMAP_MAX, 0);
}

int fifo_priority(const std::vector<const Task*>& tasks, const Plan& plan) {
  std::set<std::pair<int64_t, Ns>> urgency;
  for (const Task& task : plan.tasks) urgency.emplace(task.priority, task.deadline);
  int best = FIFO_TOP - 1;
  for (const Task* task : tasks)
    best = std::min(best, static_cast<int>(std::distance(urgency.begin(), urgency.find({task->priority, task->deadline}))));
  return std::max(FIFO_TOP - best, 1);
}

std::string choose_class(const std::string& wanted, size_t processors, std::string& notice) {
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
