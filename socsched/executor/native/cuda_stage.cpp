// Stages on a CUDA GPU: the kernels of a launch list as graphs, one for every slot of outputs, started and waited for.
#include <algorithm>
#include <cstring>

#include "cuda_frame.hpp"
#include "cuda_program.hpp"
#include "cuda_shares.hpp"
#include "cuda_slots.hpp"
#include "stage.hpp"
#include "failure.hpp"
#include "realtime.hpp"
#include "graph_sizes.hpp"

namespace socsched {

namespace {

constexpr size_t PARTS_ROOM = 64;  // inputs of a part, whose numbers of rows lie in locked memory
constexpr int TIMED_RUNS = 5;      // of a stage's kernels, of which the first also loads their code

class CudaStage : public DataStage {
 public:
  using DataStage::DataStage;

  // Other memory may lie where this stage's lay.
  ~CudaStage() override {
    for (void* const memory : locked_) driver().cuMemHostUnregister(memory);
  }

  void prepare() override {
    device_ = &cuda::Device::open(settings().device);
    add_part(place_.task.name, settings());
    for (const auto& [task, follower] : settings().followers) add_part(task, follower);
    if (settings().slot >= 0) take_turns();
    fine_timers();
    stream_ = made_stream();
    const size_t room = whole_pages(parts_.size() * PARTS_ROOM * sizeof *counts_);
    counts_memory_ = allocate(room + PAGE);
    counts_ = static_cast<int32_t*>(locked(first_page(counts_memory_.get()), room));
    for (size_t i = 0; i < place_.slots.count(); i++) slot_of(*place_.slots.slot(i));
  }

  Progress launch(const Job& job) override {
    static thread_local const cuda::Device* inside = nullptr;  // its context; the last job may have run in another thread
    if (inside != device_) device_->enter();
    inside = device_;
    rows_ = -1;
    slot_ = &slot_of(*job.output);
    const Ns begun = monotonic_ns();  // copying its inputs is part of a job
    if (parts_.size() > 1 && !begin_frame(*job.output)) return Progress::failed;
    for (size_t i = 0; i < settings().inputs.size(); i++)
      if (!queue_input(job, i)) return Progress::failed;
    output_ = job.output;
    started_ = ended_ = 0;
    slot_->frame.begun = begun;
    since_ = monotonic_ns();
    device_->begin(place_.task.criticality);
    while (started_ < std::min(sizes_.queued, slot_->graphs.size()))
      if (!start_graph()) return ended(Progress::failed);
    return Progress::running;
  }

  Progress poll() override {
    if (!holds(look(), "running the kernels")) return ended(Progress::failed);
    since_ = monotonic_ns();
    ended_++;
    if (started_ < slot_->graphs.size()) {
      pass_gate();
      while (device_->yields(place_.task.criticality)) sleep_until(monotonic_ns() + cuda::Patience::NAP);
      if (!start_graph()) return ended(Progress::failed);
    }
    if (ended_ < slot_->graphs.size()) return Progress::running;
    set_rows(settings(), *output_, rows_);
    return ended(Progress::done);
  }

  Busy busy() const override { return parts_.size() > 1 ? Busy{slot_->frame.begun, slot_->frame.ends[0]} : Busy{}; }

  std::string notice() const override {
    if (!copies_) return notice_;
    return notice_ + (notice_.empty() ? "" : "; ") + place_.task.name + ": " + std::to_string(copies_) + " jobs copied their weights themselves, since another network's had come first";
  }

 private:
  // A stage of the frame: its launch list, the results that all frames share where no other stage reads them, and where
  // its inputs come from: a part and an output of it.
  struct Part {
    std::string task;
    const StageSettings* settings = nullptr;
    std::unique_ptr<cuda::Program> program;
    cuda::Address results = 0;
    std::vector<std::pair<size_t, size_t>> from;
  };

  // Of results to memory of a port on the host.
  struct Copy {
    size_t port = 0;
    uint64_t first = 0, bytes = 0;
    void* to = nullptr;
  };

  // What a slot of outputs needs on the device.
  struct Slot {
    const Data* data = nullptr;
    std::vector<cuda::Address> results;        // by part
    std::vector<std::vector<Copy>> copies;     // by part
    std::vector<cuda::Executable*> graphs;     // the first one also copies row numbers, the last one outputs
    std::vector<Memory> memory;                // of outputs of the stages that follow, and of marks
    cuda::Frame frame;
    cuda::Address ended = 0;                   // the frame's marks, as the device sees them
    bool begun = false;
  };

  const StageSettings& settings() const { return place_.settings; }
  const cuda::Driver& driver() const { return device_->driver(); }
  const cuda::Program& program() const { return *parts_[0].program; }

  void add_part(const std::string& task, const StageSettings& how) {
    Part part{task, &how, std::make_unique<cuda::Program>(cuda::Program::load(how.programs, *device_, how.slot >= 0)), 0, {}};
    bool fits = part.program->inputs().size() == how.inputs.size() && part.program->outputs().size() == how.outputs.size();
    for (size_t i = 0; fits && !parts_.empty() && i < how.inputs.size(); i++) {
      const auto source = std::find_if(parts_.begin(), parts_.end(), [&](const Part& one) { return one.task == how.inputs[i].from; });
      fits = source != parts_.end() && how.inputs[i].port < source->settings->outputs.size() &&
             source->program->outputs()[how.inputs[i].port].bytes == part.program->inputs()[i].bytes;
      part.from.emplace_back(source - parts_.begin(), how.inputs[i].port);
    }
    if (!fits) throw Failure(USAGE, task + ": its launch list has other inputs or outputs than the settings", "write the settings again");
    if (how.inner) part.results = memory_on_device(part.program->results_bytes());
    parts_.push_back(std::move(part));
  }

  // Keep the weights on the host, and read them where loads put them.
  void take_turns() {
    cuda::Program& own = *parts_[0].program;
    weights_ = &cuda::Slot::of(*device_, settings().slot, settings().slot_bytes);
    network_ = weights_->add(place_.task.name, read_code(own.weights()), own.constants_bytes());
    own.place_constants(weights_->address());
  }

  cuda::Address memory_on_device(uint64_t bytes) {
    cuda::Address made = 0;
    if (bytes) device_->check(driver().cuMemAlloc_v2(&made, bytes), "allocating memory");
    return made;
  }

  // Pages of the host, locked until the stage is gone.
  void* locked(void* memory, size_t bytes) {
    device_->check(driver().cuMemHostRegister_v2(memory, bytes, cuda::MAPPED), "locking memory");
    locked_.insert(std::lower_bound(locked_.begin(), locked_.end(), memory), memory);
    return memory;
  }

  // Where the device has locked pages.
  cuda::Address on_device(void* memory) {
    cuda::Address made = 0;
    device_->check(driver().cuMemHostGetDevicePointer_v2(&made, memory, 0), "mapping memory");
    return made;
  }

  // A stream on the lanes of the task, each a group of SMs; on the whole GPU where an engine has one lane, or with a notice.
  cuda::Stream* made_stream() {
    const int criticality = static_cast<int>(place_.task.criticality);
    const std::vector<int>& lanes = place_.task.lanes;
    const cuda::Share share{lanes.empty() ? 0 : static_cast<size_t>(lanes.front()), lanes.size(), settings().groups};
    if (share.whole()) return device_->stream(criticality);
    std::string why;
    cuda::Stream* const made = cuda::stream_on(*device_, share, device_->priority(criticality), why);
    if (made) return made;
    add_notice(place_.task.name + " runs on the whole GPU instead of its share: " + why);
    return device_->stream(criticality);
  }

  void add_notice(const std::string& text) { notice_ += (notice_.empty() ? "" : "; ") + text; }

  Progress ended(Progress how) {
    device_->end(place_.task.criticality);
    return how;
  }

  bool holds(int status, const char* what) {
    if (status) fail(device_->error(status, what));
    return !status;
  }

  // Clear the marks of a frame, once the one before in this memory has ended: stages that follow may have been dropped.
  bool begin_frame(Data& data) {
    cuda::Frame& frame = slot_->frame;
    const size_t last = parts_.size() - 1;
    cuda::Patience patience;
    const Ns now = monotonic_ns();
    if (slot_->begun && !holds(patience.wait(now, [&] { return frame.state(last, now); }), "running the kernels")) return false;
    for (size_t part = 0; part <= last; part++) frame.ended[part].store(0, std::memory_order_relaxed);
    std::fill(frame.ends.begin(), frame.ends.end(), 0);
    data.frame = &frame;
    return slot_->begun = true;
  }

  // Queue the copy of an input from the device, or from the host, into the program's memory.
  bool queue_input(const Job& job, size_t number) {
    const Tensor* tensor = arriving(job, number);
    const cuda::Input& to = program().inputs()[number];
    const cuda::Address target = program().address(to.place, 0);
    const bool near = tensor && tensor->device && !tensor->scale && tensor->type.lies_as(settings().inputs[number].type);
    const Tensor* const found = near ? tensor : tensor ? input(job, number) : nullptr;
    if (!found) return false;
    const uint64_t bytes = found->type.bytes();
    if (to.row_bytes ? bytes > to.bytes || found->type.shape[0] < 0 : bytes != to.bytes) {
      fail("data from " + settings().inputs[number].from + " have another size than it takes");
      return false;
    }
    if (near) {
      if (bytes && !holds(driver().cuMemcpyDtoDAsync_v2(target, found->device, bytes, stream_), "copying an input")) return false;
    } else if (bytes) {
      if (found->whole) lock(found->whole, found->whole_bytes);
      if (!holds(driver().cuMemcpyHtoDAsync_v2(target, found->data, bytes, stream_), "copying an input")) return false;
    }
    if (!to.row_bytes) return true;
    if (rows_ < 0) rows_ = found->type.shape[0];
    if (to.filled && bytes < to.bytes && !holds(driver().cuMemsetD8Async(target + bytes, to.fill, to.bytes - bytes, stream_), "filling an input")) return false;
    counts_[number] = static_cast<int32_t>(found->type.shape[0]);  // which the graph copies
    return true;
  }

  // Lock host memory when it is first seen, so that copies from it need no processor.  Without it they are just slower.
  void lock(void* memory, uint64_t bytes) {
    const auto place = std::lower_bound(locked_.begin(), locked_.end(), memory);
    if ((place != locked_.end() && *place == memory) || std::find(unlockable_.begin(), unlockable_.end(), memory) != unlockable_.end()) return;
    if (driver().cuMemHostRegister_v2(memory, bytes, 0) == 0)
      locked_.insert(place, memory);
    else
      unlockable_.push_back(memory);
  }

  bool start_graph() {
    const auto queue = [this] { return driver().cuGraphLaunch(slot_->graphs[started_], stream_); };
    if (!holds(weights_ ? weights_->use(network_, stream_, copies_, queue) : queue(), "launching the kernels")) return false;
    cuda::Event* const mark = events_[started_++];
    return events_.size() == 1 || holds(driver().cuEventRecord(mark, stream_), "marking an event");
  }

  // Wait for the oldest graph; for a frame's first part, or the stream, if it is the only one.
  int look() {
    cuda::Patience& patience = patience_[ended_];
    if (parts_.size() > 1) return slot_->frame.wait(0, since_, patience);
    return patience.wait(since_, [this] { return events_.size() == 1 ? driver().cuStreamQuery(stream_) : driver().cuEventQuery(events_[ended_]); });
  }

  // The device's side of a slot, made when it is first seen: before the run, except for slots added during it.
  Slot& slot_of(Data& data) {
    for (const auto& slot : slots_)
      if (slot->data == &data) return *slot;
    Slot& slot = *slots_.emplace_back(std::make_unique<Slot>());
    slot.data = &data;
    slot.frame.device = device_;
    slot.frame.stream = stream_;
    slot.copies.resize(parts_.size());
    for (size_t number = 0; number < parts_.size(); number++) make_outputs(slot, data, number);
    if (parts_.size() > 1) {
      slot.frame.ended = static_cast<std::atomic<uint8_t>*>(locked(room_of(slot, PAGE), PAGE));
      slot.ended = on_device(slot.frame.ended);
      slot.frame.ends.resize(parts_.size());
      for (size_t part = 0; part < parts_.size(); part++) {
        device_->check(driver().cuEventCreate(&slot.frame.marks.emplace_back(), 0), "making an event");
        slot.frame.shown_by.push_back(shown_by(part));
      }
    }
    if (events_.empty()) divide(slot);
    size_t first = 0;
    for (const size_t end : sizes_.ends) {
      slot.graphs.push_back(record([&] { record_parts(slot, first, end); }));
      first = end;
    }
    return slot;
  }

  // Divide the kernels into graphs: one, or as many as the time asks for that bounds count for what cannot be stopped.
  void divide(const Slot& slot) {
    const size_t kernels = program().kernels();
    sizes_.ends = {kernels};
    if (settings().longest && parts_.size() == 1 && kernels > 1) {
      sizes_ = graph_sizes(kernel_times(slot), settings().longest, settings().queued);
      if (sizes_.longest > settings().longest)
        add_notice(place_.task.name + " has a kernel of " + std::to_string(sizes_.longest / 1000) + " us, which bounds count as " + std::to_string(settings().longest / 1000));
    }
    for (size_t graph = 0; graph < sizes_.ends.size(); graph++)
      device_->check(driver().cuEventCreate(&events_.emplace_back(), cuda::DISABLE_TIMING), "making an event");
    patience_.resize(events_.size());
  }

  // What each kernel takes alone (ns), with the copies before the first and after the last, by the device's clock: the
  // least of several runs, on inputs of zeros with as many rows as there is room for.
  std::vector<Ns> kernel_times(const Slot& slot) {
    const size_t kernels = program().kernels();
    std::vector<cuda::Event*> marks(kernels + 1);
    for (cuda::Event*& mark : marks) device_->check(driver().cuEventCreate(&mark, 0), "making an event");
    const auto mark = [&](size_t number) { device_->check(driver().cuEventRecordWithFlags(marks[number], stream_, cuda::EXTERNAL), "marking a kernel"); };
    cuda::Executable* const graph = record([&] {
      mark(0);
      for (size_t kernel = 0; kernel < kernels; kernel++) {
        record_parts(slot, kernel, kernel + 1);
        mark(kernel + 1);
      }
    });
    for (size_t i = 0; i < program().inputs().size(); i++) {
      const cuda::Input& to = program().inputs()[i];
      device_->check(driver().cuMemsetD8Async(program().address(to.place, 0), 0, to.bytes, stream_), "clearing an input");
      if (to.row_bytes) counts_[i] = static_cast<int32_t>(to.bytes / to.row_bytes);
    }
    std::vector<Ns> times(kernels, INT64_MAX);
    int64_t copies = 0;
    for (int run = 0; run < TIMED_RUNS; run++) {
      const auto queue = [&] { return driver().cuGraphLaunch(graph, stream_); };
      device_->check(weights_ ? weights_->use(network_, stream_, copies, queue) : queue(), "timing the kernels");
      device_->check(driver().cuStreamSynchronize(stream_), "timing the kernels");
      for (size_t kernel = 0; kernel < kernels; kernel++) {
        float ms = 0;
        device_->check(driver().cuEventElapsedTime(&ms, marks[kernel], marks[kernel + 1]), "timing the kernels");
        times[kernel] = std::min(times[kernel], static_cast<Ns>(ms * 1e6f));
      }
    }
    return times;
  }

  // The part whose end is waited for in order to learn that of another one.
  size_t shown_by(size_t part) const {
    while (part + 1 < parts_.size() && !parts_[part].settings->shown) part++;
    return part;
  }

  // Whole pages of a slot.
  static void* room_of(Slot& slot, size_t bytes) { return first_page(slot.memory.emplace_back(allocate(whole_pages(bytes) + PAGE)).get()); }

  // The memory of a part's outputs on the device, and on the host for what it reads: as on the device and with one copy,
  // unless much else lies in between.
  void make_outputs(Slot& slot, Data& data, size_t number) {
    const Part& part = parts_[number];
    std::vector<Tensor>& ports = number ? slot.frame.ports.emplace_back(part.settings->outputs.size()) : (slot.frame.ports.emplace_back(), data.ports);
    const std::vector<cuda::Output>& outputs = part.program->outputs();
    const std::vector<bool>& on_host = part.settings->on_host;
    // A Jetson's GPU reaches the host's memory, but past its caches: fit for what one kernel writes and none reads.
    char* host = nullptr;
    const bool read_by_host = std::find(on_host.begin(), on_host.end(), false) == on_host.end();
    if (device_->one_memory() && number + 1 == parts_.size() && read_by_host && part.program->only_writes_results() && part.program->results_bytes())
      host = static_cast<char*>(locked(room_of(slot, part.program->results_bytes()), whole_pages(part.program->results_bytes())));
    slot.results.push_back(host ? on_device(host) : part.settings->inner ? part.results : memory_on_device(part.program->results_bytes()));
    std::vector<Copy>& copies = slot.copies[number];
    uint64_t read = 0, first = UINT64_MAX, end = 0;
    for (size_t port = 0; port < outputs.size(); port++) {
      const cuda::Output& from = outputs[port];
      ports[port].type = part.settings->outputs[port];
      ports[port].device = slot.results[number] + from.offset;
      ports[port].gpu = device_->number();
      if (host) ports[port].data = host + from.offset;
      if (host || !on_host[port] || !from.bytes) continue;
      read += from.bytes;
      first = std::min(first, from.offset);
      end = std::max(end, from.offset + from.bytes);
      copies.push_back({port, from.offset, from.bytes});
    }
    if (copies.size() > 1 && end - first <= read + read / 2 + PAGE) copies = {{copies[0].port, first, end - first}};
    for (Copy& copy : copies) {
      copy.to = locked(room_of(slot, copy.bytes), whole_pages(copy.bytes));
      for (size_t port = 0; port < outputs.size(); port++)
        if (on_host[port] && outputs[port].bytes && outputs[port].offset >= copy.first && outputs[port].offset < copy.first + copy.bytes)
          ports[port].data = static_cast<char*>(copy.to) + (outputs[port].offset - copy.first);
    }
  }

  template <class Queue>
  cuda::Executable* record(Queue queue) {
    cuda::Graph* graph = nullptr;
    cuda::Executable* made = nullptr;
    device_->check(driver().cuStreamBeginCapture_v2(stream_, cuda::THREAD_LOCAL), "recording");
    queue();
    device_->check(driver().cuStreamEndCapture(stream_, &graph), "recording");
    device_->check(driver().cuGraphInstantiateWithFlags(&made, graph, 0), "making a graph");
    driver().cuGraphDestroy(graph);
    return made;
  }

  // Queue kernels of its own, and all of the stages that follow.
  void record_parts(const Slot& slot, size_t first, size_t last) {
    record_part(slot, 0, first, last);
    for (size_t number = 1; number < parts_.size(); number++) record_part(slot, number, 0, parts_[number].program->kernels());
  }

  void record_part(const Slot& slot, size_t number, size_t first, size_t last) {
    const cuda::Program& program = *parts_[number].program;
    std::vector<cuda::Address> inputs;
    for (const auto& [part, port] : parts_[number].from) inputs.push_back(slot.results[part] + parts_[part].program->outputs()[port].offset);
    for (size_t input = 0; first == 0 && input < program.inputs().size(); input++)
      if (const cuda::Input& to = program.inputs()[input]; to.counts) {
        int32_t* const count = counts_ + number * PARTS_ROOM + input;
        if (number) *count = static_cast<int32_t>(to.bytes / std::max(to.row_bytes, uint64_t{1}));
        device_->check(driver().cuMemcpyHtoDAsync_v2(program.address(to.count, 0), count, sizeof *count, stream_), "copying a number of rows");
      }
    program.queue(*device_, stream_, slot.results[number], first, last, inputs);
    if (last < program.kernels()) return;
    for (const Copy& copy : slot.copies[number])
      device_->check(driver().cuMemcpyDtoHAsync_v2(copy.to, slot.results[number] + copy.first, copy.bytes, stream_), "copying outputs");
    if (parts_.size() == 1) return;
    device_->check(driver().cuEventRecordWithFlags(slot.frame.marks[number], stream_, cuda::EXTERNAL), "marking a part");
    if (shown_by(number) == number) device_->check(driver().cuMemsetD8Async(slot.ended + number, 1, 1, stream_), "marking a part");
  }

  const cuda::Device* device_ = nullptr;
  std::vector<Part> parts_;           // its own first, then those of the stages that follow
  cuda::Stream* stream_ = nullptr;
  GraphSizes sizes_;
  std::vector<cuda::Event*> events_;  // by graph
  std::vector<cuda::Patience> patience_;  // by graph, from its start or the end of the one before
  Ns since_ = 0;                      // when the graph that is waited for began, at the earliest
  size_t started_ = 0, ended_ = 0;
  Memory counts_memory_;
  int32_t* counts_ = nullptr;         // by part and input: its number of rows, in locked memory
  std::vector<void*> locked_;         // sorted
  std::vector<void*> unlockable_;     // what could not be locked, which is tried once
  std::vector<std::unique_ptr<Slot>> slots_;
  Slot* slot_ = nullptr;
  Data* output_ = nullptr;
  int64_t rows_ = -1, copies_ = 0;    // copies_: of weights, by jobs
  cuda::Slot* weights_ = nullptr;     // where they are loaded for every frame
  size_t network_ = 0;                // the number of its weights there
  std::string notice_;
};

// A stage whose kernels another one has started, in the graph of its frame.
class FollowingStage : public DataStage {
 public:
  explicit FollowingStage(const StagePlace& place) : DataStage(place), leader_(place.control.data_number(place.control.names().find(place.settings.follows))) {
    if (leader_ < 0) throw Failure(USAGE, place.task.name + ": follows " + place.settings.follows + ", which it does not need", "write the settings again");
  }

  void prepare() override { fine_timers(); }

  Progress launch(const Job& job) override {
    const Data* const lead = job.given.data[leader_];
    frame_ = lead ? static_cast<cuda::Frame*>(lead->frame) : nullptr;
    if (!frame_) return fail("its frame was not started by " + place_.settings.follows);
    output_ = job.output;
    output_->ports = frame_->ports[place_.settings.part];  // of equal number, so that nothing is allocated
    since_ = monotonic_ns();
    frame_->device->begin(place_.task.criticality);
    return Progress::running;
  }

  Progress poll() override {
    const int status = frame_->wait(place_.settings.part, since_, patience_);
    frame_->device->end(place_.task.criticality);
    if (status) return fail(frame_->device->error(status, "running the kernels"));
    set_rows(place_.settings, *output_, -1);
    return Progress::done;
  }

  Busy busy() const override { return {frame_->ends[place_.settings.part - 1], frame_->ends[place_.settings.part]}; }

 private:
  int leader_;
  cuda::Frame* frame_ = nullptr;
  cuda::Patience patience_;
  Data* output_ = nullptr;
  Ns since_ = 0;
};

}  // namespace

std::unique_ptr<Stage> make_cuda_stage(const StagePlace& place) {
  if (place.settings.follows.empty()) return std::make_unique<CudaStage>(place);
  return std::make_unique<FollowingStage>(place);
}

}  // namespace socsched
