// Objects allocated before the run and handed out during it, so that nothing is allocated on the path of a job.
#pragma once

#include <cstddef>
#include <vector>

namespace socsched {

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

}  // namespace socsched
