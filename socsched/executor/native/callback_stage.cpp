// Stages that the process which started this one runs (socsched/executor/callbacks.py), and what it wants to see of others.
#include "channel.hpp"
#include "stage.hpp"
#include "failure.hpp"

namespace socsched {

namespace {

// Its thread asks, waits, and takes the outputs as they come: their number is known, their sizes are not.
class CallbackStage : public DataStage {
 public:
  CallbackStage(const StagePlace& place, int socket) : DataStage(place), channel_(socket), inputs_(place.settings.inputs.size()) {}

  void prepare() override {
    channel_.send("\"prepare\":true");
    const JsonFile reply = channel_.receive();
    if (reply.root().has("error")) throw Failure(MACHINE, reply.root()["error"].text(MOST_ERROR), "");
  }

  Progress launch(const Job& job) override {
    for (size_t i = 0; i < inputs_.size(); i++) {
      inputs_[i] = arriving(job, i);
      if (!inputs_[i]) return Progress::failed;
      if (!inputs_[i]->data) return fail("data from " + place_.settings.inputs[i].from + " are on the device only");
    }
    channel_.send("\"frame\":" + std::to_string(job.frame) + ",\"cheap\":" + (job.cheap ? "true" : "false"), inputs_);
    const JsonFile reply = channel_.receive();
    if (reply.root().has("error")) {
      raised_ = reply.root()["error"].text(MOST_ERROR);
      return Progress::failed;
    }
    const std::vector<TensorType> outputs = Channel::tensors_of(reply);
    if (outputs.size() != place_.settings.outputs.size()) return fail("returned another number of outputs than it has");
    for (size_t i = 0; i < outputs.size(); i++) {
      Tensor& tensor = job.output->ports[i];
      tensor.type = outputs[i];
      tensor.data = place_.slots.room(*job.output, i, tensor.type.bytes());
      channel_.read(tensor.data, tensor.type.bytes());
    }
    return Progress::done;
  }

  std::string error() const override { return raised_.empty() ? DataStage::error() : raised_; }

 private:
  static constexpr size_t MOST_ERROR = 100'000;

  Channel channel_;
  std::vector<const Tensor*> inputs_;
  std::string raised_;
};

// A stage whose outputs are shown to the other process after every job, before its successors get them.
class ObservedStage : public Stage {
 public:
  ObservedStage(std::unique_ptr<Stage> stage, int socket) : stage_(std::move(stage)), channel_(socket) {}

  void prepare() override { stage_->prepare(); }
  Offer offer(size_t number) override { return stage_->offer(number); }
  Progress launch(const Job& job) override { return stage_->launch(job); }
  Progress poll() override { return stage_->poll(); }
  std::string error() const override { return stage_->error(); }
  std::string notice() const override { return stage_->notice(); }

  void show(const Job& job) override {
    std::vector<const Tensor*> tensors;
    std::string ports;
    for (size_t port = 0; port < job.output->ports.size(); port++) {
      if (!job.output->ports[port].data) continue;
      ports += (ports.empty() ? "" : ",") + std::to_string(port);
      tensors.push_back(&job.output->ports[port]);
    }
    channel_.send("\"frame\":" + std::to_string(job.frame) + ",\"ports\":[" + ports + "]", tensors);
    channel_.receive();
  }

 private:
  std::unique_ptr<Stage> stage_;
  Channel channel_;
};

}  // namespace

std::unique_ptr<Stage> make_callback_stage(const StagePlace& place, size_t number) {
  if (number >= place.settings.channels.size()) throw Failure(USAGE, place.task.name + ": expected a channel for each of its places", "write the settings again");
  return std::make_unique<CallbackStage>(place, place.settings.channels[number]);
}

std::unique_ptr<Stage> make_observed_stage(std::unique_ptr<Stage> stage, int socket) {
  return std::make_unique<ObservedStage>(std::move(stage), socket);
}

}  // namespace socsched
