#include "data_slots.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "failure.hpp"

namespace socsched {

DataSlots::DataSlots(size_t count, const StageSettings& stage) : stage_(stage) {
  while (slots_.size() < count) add();
}

void DataSlots::add() {
  Slot& slot = *slots_.emplace_back(std::make_unique<Slot>());
  size_t ports = stage_.outputs.size();
  if (stage_.kind == "convert")
    for (const InputSettings& input : stage_.inputs) ports = std::max(ports, input.port + 1);
  slot.ports.resize(ports);
  slot.rooms.resize(ports);
  slot.home = &free_;
  for (size_t port = 0; port < stage_.outputs.size(); port++) {
    slot.ports[port].type = stage_.outputs[port];
    if (stage_.kind == "host") slot.ports[port].data = room(slot, port, stage_.outputs[port].bytes());
  }
  free_.reserve(slots_.size() + 64);
  free_.push_back(&slot);
}

Data* DataSlots::take() {
  if (free_.empty()) add();
  Data* const slot = free_.back();
  free_.pop_back();
  return slot;
}

void* DataSlots::room(Data& data, size_t port, size_t bytes) {
  Room& room = static_cast<Slot&>(data).rooms[port];
  if (!room.memory || room.bytes < bytes) {
    room.memory = allocate(bytes);
    room.bytes = bytes;
  }
  return room.memory.get();
}

SensorFrames::SensorFrames(const SensorSettings& settings) : settings_(settings), frames_(settings.frames.size()) {
  std::FILE* const file = std::fopen(settings.file.c_str(), "rb");
  if (!file) throw Failure(USAGE, settings.file + ": cannot be read: " + std::strerror(errno), "start the run again");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closes(file, std::fclose);
  const auto read = [&](const FrameSettings& from, Data& to) {
    for (const TensorType& type : from.ports) {
      Memory& memory = memory_.emplace_back(allocate(type.bytes()));
      if (std::fread(memory.get(), 1, type.bytes(), file) != type.bytes())
        throw Failure(USAGE, settings.file + ": is shorter than its frames", "start the run again");
      Tensor tensor;
      tensor.data = memory.get();
      tensor.type = type;
      to.ports.push_back(tensor);
    }
  };
  for (size_t i = 0; i < frames_.size(); i++) read(settings.frames[i], frames_[i]);
  read(settings.warm, warm_);
}

}  // namespace socsched
