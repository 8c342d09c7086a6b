// Release times of sensors and timers: absolute, so that lateness does not accumulate.
#pragma once

#include <algorithm>
#include <vector>

#include "plan.hpp"

namespace socsched {

class Timetable {
 public:
  struct Row {
    int provider;
    Ns offset, period;
    int64_t frame = 0;  // the next one
    Ns next() const { return offset + frame * period; }
  };

  // Sensors first, then timers, in the order of the plan.
  Timetable(const Plan& plan, Ns horizon) : horizon_(horizon) {
    for (const Sensor& sensor : plan.sensors) rows_.push_back({sensor.provider, sensor.offset, sensor.period});
    for (const Task& task : plan.tasks)
      if (task.timer) rows_.push_back({task.provider, task.offset, task.period});
  }

  // The instant of the next release, -1 if there are none before the horizon.
  Ns next() const {
    Ns first = horizon_;
    for (const Row& row : rows_) first = std::min(first, row.next());
    return first < horizon_ ? first : -1;
  }

  // Call `release(provider, frame)` for every release of an instant, and go on to the next.
  template <class Release>
  void take(Ns instant, Release release) {
    for (Row& row : rows_)
      if (row.next() == instant) release(row.provider, row.frame++);
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  Ns horizon_;
  std::vector<Row> rows_;
};

}  // namespace socsched
