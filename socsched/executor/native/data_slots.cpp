#include "data_slots.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/stat.h>

#include "failure.hpp"

namespace socsched {

namespace {


}  // namespace

size_t DataSlots::bytes(const StageSettings& stage) {
  size_t total = 0;
  if (stage.kind == "host")
    for (const TensorType& type : stage.outputs)
      if (__builtin_add_overflow(total, type.bytes(), &total)) return TOO_LARGE;
  return total;
}

DataSlots::DataSlots(size_t count, const StageSettings& stage) : stage_(stage) {
  require_room(bytes(stage), count, stage.title.empty() ? "a stage" : stage.title);
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
  for (size_t port = 0; port < stage_.outputs.size(); port++) slot.ports[port].type = stage_.outputs[port];
  if (supplied_) supply(slot);
  free_.reserve(slots_.size() + 64);
  free_.push_back(&slot);
}

void DataSlots::supply() {
  supplied_ = true;
  for (const auto& slot : slots_) supply(*slot);
}

void DataSlots::supply(Slot& slot) {
  for (size_t port = 0; port < stage_.outputs.size(); port++) {
    Tensor& tensor = slot.ports[port];
    if (slot.rooms[port].lent) continue;
    tensor.whole_bytes = whole_pages(stage_.outputs[port].bytes());
    tensor.data = tensor.whole = first_page(room(slot, port, tensor.whole_bytes + PAGE));
  }
}

bool DataSlots::lend(size_t number, size_t port, void* memory, size_t bytes) {
  Slot& slot = *slots_[number];
  const bool fits = reinterpret_cast<size_t>(memory) % ALIGNMENT == 0 && port < slot.rooms.size() && !slot.rooms[port].lent;
  if (!fits || (supplied_ && bytes < stage_.outputs[port].bytes())) return false;
  slot.rooms[port] = {nullptr, memory, bytes};
  if (supplied_) slot.ports[port].data = memory, slot.ports[port].whole = nullptr;
  return true;
}

Data* DataSlots::take() {
  if (free_.empty()) add();
  Data* const slot = free_.back();
  free_.pop_back();
  return slot;
}

void* DataSlots::room(Data& data, size_t port, size_t bytes) {
  Room& room = static_cast<Slot&>(data).rooms[port];
  if (room.bytes < bytes || (!room.memory && !room.lent)) room = {allocate(bytes), nullptr, bytes};
  return room.lent ? room.lent : room.memory.get();
}

SensorFrames::SensorFrames(const SensorSettings& settings) : settings_(settings), frames_(settings.frames.size()) {
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

}  // namespace socsched
