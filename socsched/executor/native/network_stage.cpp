// Networks compiled for a CPU: kernels of a launch list, computed by the worker and its helpers.
#include <optional>

#include "cpu_program.hpp"
#include "stage.hpp"
#include "failure.hpp"
#include "parallel.hpp"

namespace socsched {

namespace {

class NetworkStage : public DataStage {
 public:
  using DataStage::DataStage;

  void prepare() override {
    program_ = std::make_unique<CpuProgram>(settings().programs.at(0));
    if (program_->inputs() != settings().inputs.size() || program_->outputs().size() != settings().outputs.size())
      throw Failure(USAGE, place_.task.name + ": its launch list has other inputs or outputs than the settings", "write the settings again");
    operands_.resize(program_->inputs());
    inside_.resize(program_->inputs());
    for (size_t i = 0; i < inside_.size(); i++) {
      inside_[i].tensor.type = settings().code_inputs[i];
      if (settings().code_inputs[i].lies_as(settings().inputs[i].type)) continue;
      inside_[i].bytes = largest(settings().code_inputs[i]).bytes();
      inside_[i].memory = allocate(inside_[i].bytes);
      inside_[i].tensor.data = inside_[i].memory.get();
    }
    size_t room = 0;
    for (size_t port = 0; port < settings().outputs.size(); port++) {
      const TensorType code = largest(settings().code_outputs[port]), given = largest(settings().outputs[port]);
      relaid_ |= !code.lies_as(given);
      if (code.bytes() != program_->outputs()[port].bytes || code.form(given).bytes() != given.bytes() || !given.fixed())
        throw Failure(USAGE, place_.task.name + ": its launch list has other outputs than the settings", "write the settings again");
      room += given.bytes();
    }
    require_room(relaid_ ? room : program_->results_bytes(), place_.slots.count(), place_.task.name);
    if (relaid_) results_ = allocate(program_->results_bytes());
    for (size_t i = 0; i < place_.slots.count(); i++) make_room(*place_.slots.slot(i));
  }

  Progress launch(const Job& job) override {
    for (size_t i = 0; i < operands_.size(); i++) {
      operands_[i] = input(job, i);
      if (!operands_[i]) return Progress::failed;
      if (!inside_[i].memory) continue;
      const TensorType& code = settings().code_inputs[i];
      if (operands_[i]->type.rank != code.rank || operands_[i]->type.form(code).bytes() > inside_[i].bytes)
        return fail("data from " + settings().inputs[i].from + " have another shape than was compiled");
      if (!convert(*operands_[i], inside_[i].tensor)) return fail("no conversion between its data types");
      operands_[i] = &inside_[i].tensor;
    }
    void* const results = make_room(*job.output);
    {
      std::optional<Crew::Job> shared;
      if (program_->is_parallel()) shared.emplace(crew_of(settings().threads ? settings().threads : static_cast<int>(place_.task.lanes.size())));
      if (const std::string& why = program_->run(operands_, results); !why.empty()) return fail(why);
    }
    for (size_t port = 0; port < settings().outputs.size(); port++) {
      Tensor& tensor = job.output->ports[port];
      if (relaid_) {
        Tensor code;
        code.data = static_cast<char*>(results) + program_->outputs()[port].offset;
        code.type = sized(settings().code_outputs[port], program_->rows(port));
        tensor.type = settings().outputs[port];
        if (!convert(code, tensor)) return fail("no conversion between its data types");
      } else {
        tensor.type = sized(settings().outputs[port], program_->rows(port));
      }
    }
    return Progress::done;
  }

 private:
  struct Inside {
    Tensor tensor;
    Memory memory;  // none for an input that kernels take as it is
    size_t bytes = 0;
  };

  const StageSettings& settings() const { return place_.settings; }

  static TensorType sized(TensorType type, int64_t rows) {
    if (type.rank && type.shape[0] < 0) type.shape[0] = rows;
    return type;
  }

  TensorType largest(const TensorType& type) const { return sized(type, program_->most_rows()); }

  // Return the memory of a frame's results: one block of the slot, unless each is converted into its own.
  void* make_room(Data& slot) {
    if (relaid_) {
      for (size_t port = 0; port < slot.ports.size(); port++)
        slot.ports[port].data = place_.slots.room(slot, port, largest(settings().outputs[port]).bytes());
      return results_.get();
    }
    char* const whole = static_cast<char*>(place_.slots.room(slot, 0, program_->results_bytes()));
    for (size_t port = 0; port < slot.ports.size(); port++) slot.ports[port].data = whole + program_->outputs()[port].offset;
    return whole;
  }

  static Crew& crew_of(int threads) {
    thread_local std::vector<std::unique_ptr<Crew>> crews;  // of a worker, whose stages run one at a time; made in the warm-up
    for (const auto& known : crews)
      if (known->threads() == threads) return *known;
    const Flushed inherited;
    return *crews.emplace_back(std::make_unique<Crew>(threads));
  }

  std::unique_ptr<CpuProgram> program_;
  std::vector<const Tensor*> operands_;
  std::vector<Inside> inside_;
  Memory results_;
  bool relaid_ = false;
};

}  // namespace

std::unique_ptr<Stage> make_network_stage(const StagePlace& place) { return std::make_unique<NetworkStage>(place); }

}  // namespace socsched
