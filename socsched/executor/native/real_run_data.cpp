// Data of a run in real time: slots of stages, frames of sensors, and the warm-up, which runs every stage before time zero.
#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "failure.hpp"
#include "real_run.hpp"

namespace socsched {

namespace {

constexpr size_t MOST_SLOTS = 16;  // made before the run; more are added if they are needed
constexpr int WARM_FRAMES = 3;

// By provider, the number of jobs that may hold its outputs at once: its own, those waiting for it, and the latest sampled one.
std::vector<size_t> holders(const Wiring& wiring, int providers) {
  std::vector<size_t> counts(static_cast<size_t>(providers), 2);
  for (const Task& task : wiring.plan.tasks) {
    const std::vector<int>&needed = wiring.needs[static_cast<size_t>(task.number)], &carried = wiring.carry[static_cast<size_t>(task.number)];
    std::vector<int> held;
    std::set_union(needed.begin(), needed.end(), carried.begin(), carried.end(), std::back_inserter(held));
    for (const int provider : held) counts[static_cast<size_t>(provider)] += std::min(static_cast<size_t>(task.queue), MOST_SLOTS) + 1 + (task.after.size() > 1);
  }
  for (size_t& count : counts) count = std::clamp(count, size_t{WARM_FRAMES}, MOST_SLOTS);
  return counts;
}

}  // namespace

void RealRun::make_slots() {
  const Settings& settings = control_.settings();
  size_t total = 0;
  for (int version = 0; version < control_.versions(); version++) {
    slots_.emplace_back();
    computes_.emplace_back();
    leaders_.emplace_back();
    std::vector<size_t> counts = holders(control_.wiring(version), control_.names().count());
    for (const Task& task : control_.plan(version).tasks) {
      const int leader = control_.names().find(settings.stage(version, task.name).follows);
      leaders_.back().push_back(leader < 0 ? -1 : control_.data_number(leader));
      if (leader >= 0) counts[static_cast<size_t>(leader)] = std::min(counts[static_cast<size_t>(leader)] + 1, MOST_SLOTS);
    }
    for (const Task& task : control_.plan(version).tasks) {
      const StageSettings& stage = settings.stage(version, task.name);
      computes_.back().push_back(stage.computes());
      const size_t count = counts[static_cast<size_t>(task.replaces >= 0 ? task.replaces : task.provider)];
      require_room(DataSlots::bytes(stage), count, task.name);
      require_room(total += DataSlots::bytes(stage) * count, 1, "the stages together");
      slots_.back().push_back(std::make_unique<DataSlots>(count, stage));
    }
  }
  frames_.resize(data_.size());
  feeds_.resize(data_.size());
  arrived_.resize(data_.size());
  for (const auto& [sensor, given] : settings.inputs)
    if (const int provider = control_.names().find(sensor); provider >= 0) {
      frames_[static_cast<size_t>(provider)] = std::make_unique<SensorFrames>(given);
      if (given.feed < 0) continue;
      const auto arrives = [this, provider](const Feed::Frame& frame) { arrive(provider, frame); };
      feeds_[static_cast<size_t>(provider)] = std::make_unique<Feed>(given, guard_, given.is_live ? arrives : std::function<void(const Feed::Frame&)>());
      if (!given.is_live) feeds_[static_cast<size_t>(provider)]->start();
    }
}

namespace {

// The tasks whose outputs a task may be handed as those of a provider: conversions pass for what they convert.
std::vector<const Task*> makers_of(const Plan& plan, const Task& reader, int provider) {
  std::vector<const Task*> all, direct;
  for (const Task& task : plan.tasks) {
    if (&task == &reader || (task.replaces >= 0 ? task.replaces : task.provider) != provider) continue;
    all.push_back(&task);
    if (std::count(reader.after.begin(), reader.after.end(), task.provider) || std::count(reader.reads.begin(), reader.reads.end(), task.provider)) direct.push_back(&task);
  }
  return direct.empty() ? all : direct;
}

// The form of a port of a stage.
TensorType form_of(const StageSettings& stage, size_t port) {
  for (const InputSettings& input : stage.inputs)
    if (stage.kind == "convert" && input.port == port) return input.type;
  return port < stage.outputs.size() ? stage.outputs[port] : TensorType{};
}

}  // namespace

// Let outputs that one stage alone reads, in the form in which it takes them, lie where it takes them without a copy.
void RealRun::lend_places() {
  const Settings& settings = control_.settings();
  for (int version = 0; version < control_.versions(); version++) {
    const Plan& plan = control_.plan(version);
    std::map<std::pair<const Task*, size_t>, std::vector<std::pair<const Task*, size_t>>> readers;  // by maker and port
    for (const Task& task : plan.tasks) {
      const std::vector<InputSettings>& inputs = settings.stage(version, task.name).inputs;
      for (size_t i = 0; i < inputs.size(); i++)
        for (const Task* const maker : makers_of(plan, task, control_.names().find(inputs[i].from))) readers[{maker, inputs[i].port}].emplace_back(&task, i);
    }
    for (const auto& [made, by] : readers) {
      const auto& [maker, port] = made;
      const auto& [reader, number] = by[0];
      const std::vector<Worker*>& places = worker_of_[static_cast<size_t>(version)][static_cast<size_t>(reader->number)];
      const StageSettings& stage = settings.stage(version, maker->name);
      if (by.size() > 1 || places.size() > 1 || stage.records || stage.kind == "cuda" || !form_of(stage, port).lies_as(settings.stage(version, reader->name).inputs[number].type)) continue;
      DataSlots& slots = *slots_[static_cast<size_t>(version)][static_cast<size_t>(maker->number)];
      for (size_t slot = 0; slot < slots.count() && !slots.lent(slot, port); slot++) {
        const Stage::Offer offer = places[0]->stage(*reader).offer(number);
        if (!offer.memory || !slots.lend(slot, port, offer.memory, offer.bytes)) break;
      }
    }
  }
}

// Let the outputs of a stage that follows another one keep the frame that they lie in.
void RealRun::hold_frame(const Job& job) {
  const int leader = leaders_[static_cast<size_t>(job.version)][static_cast<size_t>(job.task->number)];
  if (leader >= 0) retain(job.output->holds = job.given.data[leader]);
}

// The data of a sensor's frame; without tensors, something that stands for it.
Data* RealRun::frame_data(int provider, int64_t frame) {
  const auto& frames = frames_[static_cast<size_t>(provider)];
  return frames ? frames->frame(frame) : &data_[static_cast<size_t>(provider)];
}

// Run all stages of all plans on a usable frame of each sensor, one after another, each in its own thread: it warms
// thread pools and caches, and makes memory for the frames that may later be in progress at once.
void RealRun::warm_up() {
  for (int version = 0; version < control_.versions(); version++) {
    if (std::none_of(control_.plan(version).tasks.begin(), control_.plan(version).tasks.end(), [&](const Task& task) { return computes(version, task); }))
      continue;
    std::vector<Data*> held;
    for (int frame = 0; frame < WARM_FRAMES; frame++) warm_frame(version, frame == 0, held);
    for (Data* const data : held) drop(data);
  }
}

bool RealRun::computes(int version, const Task& task) const {
  return computes_[static_cast<size_t>(version)][static_cast<size_t>(task.number)];
}

void RealRun::warm_frame(int version, bool all_levels, std::vector<Data*>& held) {
  const Plan& plan = control_.plan(version);
  std::vector<Data*> outputs(data_.size(), nullptr), given(control_.sizes().data, nullptr);
  for (size_t provider = 0; provider < frames_.size(); provider++)
    if (frames_[provider]) outputs[provider] = frames_[provider]->warm();
  std::vector<const Task*> left;
  for (const Task& task : plan.tasks)
    if (computes(version, task)) left.push_back(&task);
  const auto ready = [&](const Task* task) {
    const auto& inputs = control_.settings().stage(version, task->name).inputs;
    return std::all_of(inputs.begin(), inputs.end(), [&](const InputSettings& input) {
      return outputs[static_cast<size_t>(control_.names().find(input.from))] != nullptr;
    });
  };
  while (!left.empty()) {
    const auto next = std::find_if(left.begin(), left.end(), ready);
    if (next == left.end()) return;  // stages that read each other's data have none in a first frame either
    const Task& task = **next;
    left.erase(next);
    for (size_t provider = 0; provider < outputs.size(); provider++)
      if (const int number = control_.data_number(static_cast<int>(provider)); number >= 0) given[static_cast<size_t>(number)] = outputs[provider];
    Job job;
    job.task = &task;
    job.version = version;
    job.given.data = given.data();
    job.output = slots_[static_cast<size_t>(version)][static_cast<size_t>(task.number)]->take();
    retain(job.output);
    hold_frame(job);
    held.push_back(job.output);
    Worker* worker = worker_for(job);
    warm_job(*worker, job);
    while (all_levels && (worker = worker->above)) warm_job(*worker, job);
    const auto& places = worker_of_[static_cast<size_t>(version)][static_cast<size_t>(task.number)];
    for (size_t place = 1; place < places.size(); place++) warm_job(*places[place], job);
    outputs[static_cast<size_t>(task.replaces >= 0 ? task.replaces : task.provider)] = job.output;
  }
}

void RealRun::warm_job(Worker& worker, Job& job) {
  warmed_ = false;
  worker.mailbox.put(&job);
  while (!warmed_) sleep_until(monotonic_ns() + 50'000);
  if (!warm_error_.empty()) throw Failure(MACHINE, "stage " + job.task->name + " failed in the warm-up: " + warm_error_);
}

// A job of the warm-up, in its worker's thread.
void RealRun::execute_warm(Worker& worker, const Job& job) {
  warm_error_.clear();
  try {
    Stage& stage = worker.stage(*job.task);
    Progress progress = stage.launch(job);
    while (progress == Progress::running) progress = stage.poll();
    if (progress == Progress::failed) warm_error_ = stage.error();
  } catch (const std::exception& error) {
    warm_error_ = error.what();
  }
  warmed_ = true;
}

// Let go of a recorded job's outputs once they are noted.
void RealRun::note_detections(const Task& task, int version, int64_t frame, Data* outputs) {
  detections_.note(static_cast<size_t>(recorded_[static_cast<size_t>(version)][static_cast<size_t>(task.number)]), frame, *outputs);
  std::lock_guard<Guard> lock(guard_);
  drop(outputs);
}

}  // namespace socsched
