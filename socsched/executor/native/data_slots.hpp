// Memory of data: the outputs of a stage for as many jobs as may hold them at once, and the frames of a sensor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "job.hpp"
#include "settings.hpp"

namespace socsched {

// The outputs of one stage.
class DataSlots {
 public:
  DataSlots(size_t count, const StageSettings& stage);

  // The memory of a slot of a stage whose outputs have a place from the start.
  static size_t bytes(const StageSettings& stage);

  // Give such outputs their places, once the stage has checked their sizes.
  void supply();

  // Let a port of a slot lie in memory of a stage that reads it, which outlives the slots; false if it has such memory already.
  bool lend(size_t slot, size_t port, void* memory, size_t bytes);
  bool lent(size_t slot, size_t port) const { return port < slots_[slot]->rooms.size() && slots_[slot]->rooms[port].lent; }

  // A free slot; one is added if more frames are in progress than were expected.
  Data* take();

  // The memory of a port of a slot, made larger if it has less than `bytes`.
  void* room(Data& slot, size_t port, size_t bytes);

  size_t count() const { return slots_.size(); }
  Data* slot(size_t number) const { return slots_[number].get(); }

 private:
  struct Room {
    Memory memory;
    void* lent = nullptr;
    size_t bytes = 0;  // of the one that is there
  };

  struct Slot : Data {
    std::vector<Room> rooms;
  };

  void add();
  void supply(Slot& slot);

  const StageSettings& stage_;
  bool supplied_ = false;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Data*> free_;
};

// The frames of a sensor, read before the run.
class SensorFrames {
 public:
  // Failure if the file is shorter than its frames or cannot be read, before memory is taken.
  explicit SensorFrames(const SensorSettings& settings);

  Data* frame(int64_t number) { return &frames_[static_cast<size_t>(number) % frames_.size()]; }
  Data* warm() { return &warm_; }
  const std::string& problem(int64_t number) const {
    return settings_.frames[static_cast<size_t>(number) % settings_.frames.size()].problem;
  }

 private:
  const SensorSettings& settings_;
  std::vector<Data> frames_;
  Data warm_;
  Memory memory_;  // one piece, so that a device locks it at once
};

}  // namespace socsched
