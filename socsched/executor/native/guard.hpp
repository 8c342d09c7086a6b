// The lock around the state of a run: a mutex with priority inheritance, so that a thread that holds it is not
// preempted by others less urgent than those that wait.  Its only system call is futex, and only if it is contended.
#pragma once

#include <pthread.h>

namespace socsched {

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
