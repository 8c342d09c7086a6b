// Where a job of several kernels stops while a more urgent one has its lanes: before its next kernel or chunk of one.
#pragma once

#include <atomic>
#include <cstdint>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace socsched {

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

}  // namespace socsched
