// Memory of data: the outputs of a stage for as many jobs as may hold them at once, and the frames of a sensor.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "failure.hpp"
#include "job.hpp"
#include "settings.hpp"

namespace socsched {

// The outputs of one stage.
class DataSlots {
 public:
  DataSlots(size_t count, const StageSettings& stage) : stage_(stage) {
    require_room(bytes(stage), count, stage.title.empty() ? "a stage" : stage.title);
    while (slots_.size() < count) add();
  }

  // The memory of a slot of a stage whose outputs have a place from the start.
  static size_t bytes(const StageSettings& stage) {
    size_t total = 0;
    if (stage.kind == "host")
      for (const TensorType& type : stage.outputs)
        if (__builtin_add_overflow(total, type.bytes(), &total)) return TOO_LARGE;
    return total;
  }

  // Give such outputs their places, once the stage has checked their sizes.
  void supply() {
    supplied_ = true;
    for (const auto& slot : slots_) supply(*slot);
  }

  // Let a port of a slot lie in memory of a stage that reads it, which outlives the slots; false if it has such memory already.
  bool lend(size_t number, size_t port, void* memory, size_t bytes) {
    Slot& slot = *slots_[number];
    const bool fits = reinterpret_cast<size_t>(memory) % ALIGNMENT == 0 && port < slot.rooms.size() && !slot.rooms[port].lent;
    if (!fits || (supplied_ && bytes < stage_.outputs[port].bytes())) return false;
    slot.rooms[port] = {nullptr, memory, bytes};
    if (supplied_) slot.ports[port].data = memory, slot.ports[port].whole = nullptr;
    return true;
  }

  bool lent(size_t slot, size_t port) const { return port < slots_[slot]->rooms.size() && slots_[slot]->rooms[port].lent; }

  // A free slot; one is added if more frames are in progress than were expected.
  Data* take() {
    if (free_.empty()) add();
    Data* const slot = free_.back();
    free_.pop_back();
    return slot;
  }

  // The memory of a port of a slot, made larger if it has less than `bytes`.
  void* room(Data& data, size_t port, size_t bytes) {
    Room& room = static_cast<Slot&>(data).rooms[port];
    if (room.bytes < bytes || (!room.memory && !room.lent)) room = {allocate(bytes), nullptr, bytes};
    return room.lent ? room.lent : room.memory.get();
  }

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

  void add() {
    Slot& slot = *slots_.emplace_back(std::make_unique<Slot>());
    size_t ports = stage_.outputs.size();
    if (stage_.kind == "convert")
      for (const InputSettings& input : stage_.inputs) ports = std::max(ports, input.port + 1);
    slot.ports.resize(ports);
    slot.rooms.resize(ports);
    slot.home = &free_;
    for (size_t port = 0; port < stage_.outputs.size(); port++) slot.ports[port].type = stage_.outputs[port];
    if (supplied_) supply(slot);
    free_.reserve(slots_.size() + 64);
    free_.push_back(&slot);
  }

  void supply(Slot& slot) {
    for (size_t port = 0; port < stage_.outputs.size(); port++) {
      Tensor& tensor = slot.ports[port];
      if (slot.rooms[port].lent) continue;
      tensor.whole_bytes = whole_pages(stage_.outputs[port].bytes());
      tensor.data = tensor.whole = first_page(room(slot, port, tensor.whole_bytes + PAGE));
    }
  }

  const StageSettings& stage_;
  bool supplied_ = false;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Data*> free_;
};

// The frames of a sensor, read before the run.
class SensorFrames {
 public:
  // Failure if the file is shorter than its frames or cannot be read, before memory is taken.
  explicit SensorFrames(const SensorSettings& settings) : settings_(settings), frames_(settings.frames.size()) {
    std::FILE* const file = std::fopen(settings.file.c_str(), "rb");
    if (!file) throw Failure(USAGE, settings.file + ": cannot be read: " + std::strerror(errno), "start the run again");
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closes(file, std::fclose);
    struct stat status;
    if (fstat(fileno(file), &status) != 0 || !S_ISREG(status.st_mode)) throw Failure(USAGE, settings.file + ": expected a file", "start the run again");
    size_t total = 0;
    const auto count = [&](const FrameSettings& frame) {
      for (const TensorType& type : frame.ports)
        if (__builtin_add_overflow(total, type.bytes(), &total) || total > static_cast<size_t>(status.st_size))
          throw Failure(USAGE, settings.file + ": is shorter than its frames", "start the run again");
    };
    for (const FrameSettings& frame : settings.frames) count(frame);
    count(settings.warm);
    const size_t tensors = settings.frames.size() * settings.warm.ports.size() + settings.warm.ports.size();
    require_room(total + tensors * ALIGNMENT, 1, settings.file);
    const size_t whole = whole_pages(total + tensors * ALIGNMENT);
    memory_ = allocate(whole + PAGE);
    void* const first = first_page(memory_.get());
    char* next = static_cast<char*>(first);
    const auto read = [&](const FrameSettings& from, Data& to) {
      for (const TensorType& type : from.ports) {
        if (std::fread(next, 1, type.bytes(), file) != type.bytes())
          throw Failure(USAGE, settings.file + ": is shorter than its frames", "start the run again");
        Tensor tensor;
        tensor.data = next;
        tensor.type = type;
        tensor.whole = first;
        tensor.whole_bytes = whole;
        next += (type.bytes() + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        to.ports.push_back(tensor);
      }
    };
    for (size_t i = 0; i < frames_.size(); i++) read(settings.frames[i], frames_[i]);
    read(settings.warm, warm_);
  }

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
