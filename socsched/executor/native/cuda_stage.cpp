// Stages on a CUDA GPU: the kernels of a launch list as graphs, one for every slot of outputs, started and waited for.
#include <algorithm>
#include <cstring>

#include "clock.hpp"
#include "cuda_program.hpp"
#include "cuda_shares.hpp"
#include "data_stage.hpp"
#include "failure.hpp"
#include "gate.hpp"
#include "realtime.hpp"

namespace socsched {

namespace {

constexpr Ns NAP = 20'000;     // between looks at a piece that is about to end
class CudaStage : public DataStage {
 public:
  using DataStage::DataStage;

  // Other memory may lie where this stage's lay.
  ~CudaStage() override {
    for (void* const memory : locked_) driver().cuMemHostUnregister(memory);
  }

  void prepare() override {
    device_ = &cuda::Device::open(settings().device);
    program_ = std::make_unique<cuda::Program>(cuda::Program::load(settings().programs, *device_));
    if (program_->inputs().size() != settings().inputs.size() || program_->outputs().size() != settings().outputs.size())
      throw Failure(USAGE, place_.task.name + ": its launch list has other inputs or outputs than the settings", "write the settings again");
    fine_timers();
    stream_ = made_stream();
    const size_t piece = settings().piece ? settings().piece : std::max(program_->kernels(), size_t{1});
    for (size_t first = 0; first == 0 || first < program_->kernels(); first += piece) {
      cuda::Event*& event = events_.emplace_back();
      device_->check(driver().cuEventCreate(&event, cuda::DISABLE_TIMING), "making an event");
    }
    counts_memory_ = allocate(2 * PAGE);  // inputs are 64 at most
    counts_ = static_cast<int32_t*>(first_page(counts_memory_.get()));
    device_->check(driver().cuMemHostRegister_v2(counts_, PAGE, 0), "locking memory");
    locked_.push_back(counts_);
    for (size_t i = 0; i < place_.slots.count(); i++) slot_of(*place_.slots.slot(i), piece);
    asleep_.resize(events_.size());
    piece_ = piece;
  }

  Progress launch(const Job& job) override {
    static thread_local const cuda::Device* inside = nullptr;  // its context; the last job may have run in another thread
    if (inside != device_) device_->enter();
    inside = device_;
    rows_ = -1;
    for (size_t i = 0; i < settings().inputs.size(); i++)
      if (!queue_input(job, i)) return Progress::failed;
    slot_ = &slot_of(*job.output, piece_);
    output_ = job.output;
    started_ = ended_ = 0;
    since_ = monotonic_ns();
    device_->begin(place_.task.criticality);
    while (started_ < std::min(settings().queued, slot_->graphs.size()))
      if (!start_piece()) return ended(Progress::failed);
    return Progress::running;
  }

  // Sleeps until the oldest piece is about to end, then in naps.  To wait for an interrupt of the driver costs more: it
  // wakes a thread of the driver's, which wakes this one.  The sleep is shortened at once when it was too long, and
  // lengthened slowly, since waking takes a varying time.
  Progress poll() override {
    Ns& asleep = asleep_[ended_];
    if (const Ns until = since_ + asleep; monotonic_ns() < until) sleep_until(until);
    size_t naps = 0;
    int status;
    while ((status = look()) == cuda::NOT_READY) {
      const Ns now = monotonic_ns();
      sleep_until(now + std::max(NAP, (now - since_) / 16));
      naps++;
    }
    if (!holds(status, "running the kernels")) return ended(Progress::failed);
    const Ns now = monotonic_ns();
    asleep = naps ? asleep + (now - since_ - asleep) / 16 : std::max(asleep - NAP / 32, Ns{0});
    since_ = now;
    ended_++;
    if (started_ < slot_->graphs.size()) {
      pass_gate();
      while (device_->yields(place_.task.criticality)) sleep_until(monotonic_ns() + NAP);
      if (!start_piece()) return ended(Progress::failed);
    }
    if (ended_ < slot_->graphs.size()) return Progress::running;
    set_rows(settings(), *output_, rows_);
    return ended(Progress::done);
  }

  std::string notice() const override { return notice_; }

 private:
  // A stream on the lanes of the task, each a group of SMs; on the whole GPU where an engine has one lane, or with a notice.
  cuda::Stream* made_stream() {
    const int criticality = static_cast<int>(place_.task.criticality);
    const std::vector<int>& lanes = place_.task.lanes;
    const cuda::Share share{lanes.empty() ? 0 : static_cast<size_t>(lanes.front()), lanes.size(), settings().groups};
    if (share.whole()) return device_->stream(criticality);
    std::string why;
    cuda::Stream* const made = cuda::stream_on(*device_, share, device_->priority(criticality), why);
    if (made) return made;
    notice_ = place_.task.name + " runs on the whole GPU instead of its share: " + why;
    return device_->stream(criticality);
  }

  // Of results to memory of a port on the host.
  struct Copy {
    size_t port = 0;
    uint64_t first = 0, bytes = 0;
    void* to = nullptr;
  };

  // What a slot of outputs needs on the device.
  struct Slot {
    const Data* data = nullptr;
    cuda::Address results = 0;
    std::vector<Copy> copies;
    std::vector<cuda::Executable*> graphs;  // by piece; the first one also copies row numbers, the last one outputs
  };

  const StageSettings& settings() const { return place_.settings; }
  const cuda::Driver& driver() const { return device_->driver(); }

  Progress ended(Progress how) {
    device_->end(place_.task.criticality);
    return how;
  }

  bool holds(int status, const char* what) {
    if (status) fail(device_->error(status, what));
    return !status;
  }

  // Queue the copy of an input from the device, or from the host, into the program's memory.
  bool queue_input(const Job& job, size_t number) {
    const Tensor* tensor = arriving(job, number);
    const cuda::Input& to = program_->inputs()[number];
    const cuda::Address target = program_->address(to.place, 0);
    const bool near = tensor && tensor->device && tensor->type.lies_as(settings().inputs[number].type);
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

  bool start_piece() {
    if (!holds(driver().cuGraphLaunch(slot_->graphs[started_], stream_), "launching the kernels")) return false;
    cuda::Event* const mark = events_[started_++];
    return events_.size() == 1 || holds(driver().cuEventRecord(mark, stream_), "marking an event");
  }

  // The state of the oldest piece; that of the stream, if it is the only one.
  int look() const { return events_.size() == 1 ? driver().cuStreamQuery(stream_) : driver().cuEventQuery(events_[ended_]); }

  // The device's side of a slot, made when it is first seen: before the run, except for slots added during it.
  Slot& slot_of(Data& data, size_t piece) {
    for (const auto& slot : slots_)
      if (slot->data == &data) return *slot;
    Slot& slot = *slots_.emplace_back(std::make_unique<Slot>());
    slot.data = &data;
    if (program_->results_bytes()) device_->check(driver().cuMemAlloc_v2(&slot.results, program_->results_bytes()), "allocating memory");
    for (size_t port = 0; port < settings().outputs.size(); port++) {
      const cuda::Output& from = program_->outputs()[port];
      data.ports[port].device = slot.results + from.offset;
    }
    give_host_memory(slot, data);
    const size_t kernels = program_->kernels();
    for (size_t first = 0; first == 0 || first < kernels; first += piece) slot.graphs.push_back(record(slot, first, std::min(first + piece, kernels)));
    return slot;
  }

  // Host memory for what the host reads: as on the device and with one copy, unless much else lies in between.
  void give_host_memory(Slot& slot, Data& data) {
    const std::vector<cuda::Output>& outputs = program_->outputs();
    uint64_t read = 0, first = UINT64_MAX, end = 0;
    for (size_t port = 0; port < outputs.size(); port++) {
      const cuda::Output& from = outputs[port];
      if (!settings().on_host[port] || !from.bytes) continue;
      read += from.bytes;
      first = std::min(first, from.offset);
      end = std::max(end, from.offset + from.bytes);
      slot.copies.push_back({port, from.offset, from.bytes});
    }
    if (slot.copies.size() > 1 && end - first <= read + read / 2 + PAGE) slot.copies = {{slot.copies[0].port, first, end - first}};
    for (Copy& copy : slot.copies) {
      copy.to = first_page(place_.slots.room(data, copy.port, whole_pages(copy.bytes) + PAGE));
      device_->check(driver().cuMemHostRegister_v2(copy.to, whole_pages(copy.bytes), 0), "locking memory");
      locked_.insert(std::lower_bound(locked_.begin(), locked_.end(), copy.to), copy.to);
      for (size_t port = 0; port < outputs.size(); port++)
        if (settings().on_host[port] && outputs[port].bytes && outputs[port].offset >= copy.first && outputs[port].offset < copy.first + copy.bytes)
          data.ports[port].data = static_cast<char*>(copy.to) + (outputs[port].offset - copy.first);
    }
  }

  cuda::Executable* record(const Slot& slot, size_t first, size_t last) {
    cuda::Graph* graph = nullptr;
    cuda::Executable* made = nullptr;
    device_->check(driver().cuStreamBeginCapture_v2(stream_, cuda::THREAD_LOCAL), "recording");
    for (size_t number = 0; first == 0 && number < program_->inputs().size(); number++)
      if (const cuda::Input& to = program_->inputs()[number]; to.counts)
        device_->check(driver().cuMemcpyHtoDAsync_v2(program_->address(to.count, 0), counts_ + number, sizeof *counts_, stream_), "copying a number of rows");
    program_->queue(*device_, stream_, slot.results, first, last);
    if (last == program_->kernels())
      for (const Copy& copy : slot.copies)
        device_->check(driver().cuMemcpyDtoHAsync_v2(copy.to, slot.results + copy.first, copy.bytes, stream_), "copying outputs");
    device_->check(driver().cuStreamEndCapture(stream_, &graph), "recording");
    device_->check(driver().cuGraphInstantiateWithFlags(&made, graph, 0), "making a graph");
    driver().cuGraphDestroy(graph);
    return made;
  }

  const cuda::Device* device_ = nullptr;
  std::unique_ptr<cuda::Program> program_;
  cuda::Stream* stream_ = nullptr;
  std::vector<cuda::Event*> events_;  // by piece
  std::vector<Ns> asleep_;            // by piece: how long to sleep from its start, or the end of the one before
  Ns since_ = 0;                      // when the piece that is waited for began, at the earliest
  size_t piece_ = 1, started_ = 0, ended_ = 0;
  Memory counts_memory_;
  int32_t* counts_ = nullptr;         // by input: its number of rows, in locked memory
  std::vector<void*> locked_;         // sorted
  std::vector<void*> unlockable_;     // what could not be locked, which is tried once
  std::vector<std::unique_ptr<Slot>> slots_;
  Slot* slot_ = nullptr;
  Data* output_ = nullptr;
  int64_t rows_ = -1;
  std::string notice_;
};

}  // namespace

std::unique_ptr<Stage> make_cuda_stage(const StagePlace& place) { return std::make_unique<CudaStage>(place); }

}  // namespace socsched
