// Host stages: the functions of stages.h, with their params from the settings and a workspace allocated before the run.
#include <atomic>
#include <cstring>

#include "stage.hpp"
#include "failure.hpp"
#include "stages.h"

namespace socsched {

namespace {

constexpr int64_t MOST_BOXES = 100'000;

struct Call {
  const Tensor* in[6];
  Tensor* out[4];
  void* workspace;
  size_t workspace_bytes;
  int64_t dropped;
};

// The sizes that a stage's inputs and outputs have under its params, -1 where an input's first size is free.
struct Sizes {
  std::vector<int64_t> inputs;                      // elements
  std::vector<int64_t> outputs;                     // elements of a row
  std::vector<Dtype> input_types, output_types;
  int64_t rows = 0;                                 // of every output at most
};

template <class T>
T* data(const Tensor* tensor) {
  return static_cast<T*>(tensor->data);
}

struct Voxelise {
  using Params = socsched_voxelise_params;

  static size_t workspace(const Params& p) { return socsched_voxelise_workspace(&p); }

  static Sizes sizes(const Params& p) {
    const int64_t cells = int64_t{p.cells[0]} * p.cells[1];
    return {{-1}, {int64_t{p.max_points} * 4, 1, 2}, {Dtype::fp32}, {Dtype::fp32, Dtype::int32, Dtype::int32},
            std::min<int64_t>(p.max_pillars, cells)};
  }

  static int64_t run(const Params& p, Call& c) {
    return socsched_voxelise(&p, data<float>(c.in[0]), c.in[0]->type.shape[0], data<float>(c.out[0]), data<int32_t>(c.out[1]),
                             data<int32_t>(c.out[2]), c.workspace, c.workspace_bytes);
  }
};

struct DecodeAnchors {
  using Params = socsched_anchors_params;

  static size_t workspace(const Params& p) { return socsched_decode_anchors_workspace(&p); }

  static Sizes sizes(const Params& p) {
    const int64_t cells = int64_t{SOCSCHED_KINDS} * p.rows * p.columns;
    return {{SOCSCHED_CLASSES * cells, 7 * cells, 2 * cells}, {7, 1, 1}, {Dtype::fp32, Dtype::fp32, Dtype::fp32},
            {Dtype::fp32, Dtype::fp32, Dtype::int32}, p.max_boxes};
  }

  static int64_t run(const Params& p, Call& c) {
    return socsched_decode_anchors(&p, data<float>(c.in[0]), data<float>(c.in[1]), data<float>(c.in[2]), data<float>(c.out[0]),
                                   data<float>(c.out[1]), data<int32_t>(c.out[2]), &c.dropped, c.workspace, c.workspace_bytes);
  }
};

struct DecodeCentres {
  using Params = socsched_centres_params;

  static size_t workspace(const Params& p) { return socsched_decode_centres_workspace(&p); }

  static Sizes sizes(const Params& p) {
    const int64_t cells = int64_t{p.rows} * p.columns;
    return {{p.classes * cells, 2 * cells, cells, 3 * cells, 2 * cells, 2 * cells}, {7, 1, 1, 2},
            std::vector<Dtype>(6, Dtype::fp32), {Dtype::fp32, Dtype::fp32, Dtype::int32, Dtype::fp32}, p.max_boxes};
  }

  static int64_t run(const Params& p, Call& c) {
    return socsched_decode_centres(&p, data<float>(c.in[0]), data<float>(c.in[1]), data<float>(c.in[2]), data<float>(c.in[3]),
                                   data<float>(c.in[4]), data<float>(c.in[5]), data<float>(c.out[0]), data<float>(c.out[1]),
                                   data<int32_t>(c.out[2]), data<float>(c.out[3]), &c.dropped, c.workspace, c.workspace_bytes);
  }
};

struct DecodeImageBoxes {
  using Params = socsched_image_boxes_params;

  static size_t workspace(const Params& p) { return socsched_decode_image_boxes_workspace(&p); }

  static Sizes sizes(const Params& p) {
    const int64_t channels = SOCSCHED_IMAGE_ANCHORS * (5 + SOCSCHED_IMAGE_CLASSES);
    return {{channels * p.rows * p.columns}, {4, 1, 1}, {Dtype::fp32}, {Dtype::fp32, Dtype::fp32, Dtype::int32}, p.max_boxes};
  }

  static int64_t run(const Params& p, Call& c) {
    return socsched_decode_image_boxes(&p, data<float>(c.in[0]), data<float>(c.out[0]), data<float>(c.out[1]),
                                       data<int32_t>(c.out[2]), &c.dropped, c.workspace, c.workspace_bytes);
  }
};

struct Preprocess {
  using Params = socsched_preprocess_params;

  static size_t workspace(const Params& p) { return socsched_preprocess_workspace(&p); }

  static Sizes sizes(const Params& p) {
    const int64_t pixels = int64_t{p.height} * p.width;
    const int64_t all = p.format == SOCSCHED_NV12 ? pixels / 2 * 3 : 3 * pixels;
    return {{all}, {3 * int64_t{p.output_height} * p.output_width}, {Dtype::uint8}, {p.half ? Dtype::fp16 : Dtype::fp32}, 1};
  }

  static int64_t run(const Params& p, Call& c) {
    const int64_t rows = socsched_preprocess(&p, data<uint8_t>(c.in[0]), c.out[0]->data, 0, p.output_height, c.workspace, c.workspace_bytes);
    return rows < 0 ? rows : 1;
  }
};

template <class Kind>
class HostStage : public DataStage {
 public:
  explicit HostStage(const StagePlace& place) : DataStage(place) {
    const std::vector<uint8_t>& bytes = place.settings.params;
    if (bytes.size() != sizeof params_) refuse("params of " + std::to_string(sizeof params_) + " bytes");
    std::memcpy(&params_, bytes.data(), sizeof params_);
    workspace_bytes_ = Kind::workspace(params_);
    if (!workspace_bytes_) refuse("usable params");
    const Sizes sizes = Kind::sizes(params_);
    const auto& inputs = place.settings.inputs;
    const auto& outputs = place.settings.outputs;
    if (inputs.size() != sizes.inputs.size() || outputs.size() != sizes.outputs.size()) refuse("all of its inputs and outputs");
    if (sizes.rows > MOST_BOXES && sizes.outputs.back() != 2) refuse("at most 100,000 boxes");
    for (size_t i = 0; i < inputs.size(); i++) {
      const TensorType& type = inputs[i].type;
      const bool sized = sizes.inputs[i] < 0 ? type.rank == 2 && type.shape[1] == 4 : type.elements() == sizes.inputs[i];
      if (type.dtype != sizes.input_types[i] || !sized) refuse("inputs of its params' size and type");
    }
    for (size_t i = 0; i < outputs.size(); i++)
      if (outputs[i].dtype != sizes.output_types[i] || outputs[i].shape[0] < sizes.rows || outputs[i].elements() != outputs[i].shape[0] * sizes.outputs[i])
        refuse("outputs of its params' size and type");
  }

  void prepare() override {
    workspace_ = allocate(workspace_bytes_);
    place_.slots.supply();
  }

  Progress launch(const Job& job) override {
    Call call{};
    for (size_t i = 0; i < place_.settings.inputs.size(); i++)
      if (!(call.in[i] = input(job, i))) return Progress::failed;
    for (size_t i = 0; i < place_.settings.outputs.size(); i++) call.out[i] = &job.output->ports[i];
    call.workspace = workspace_.get();
    call.workspace_bytes = workspace_bytes_;
    const int64_t rows = Kind::run(params_, call);
    if (rows < 0) return fail(place_.settings.function + " returned " + std::to_string(rows));
    for (size_t i = 0; i < place_.settings.outputs.size(); i++) call.out[i]->type.shape[0] = rows;
    if (call.dropped) dropped_.fetch_add(call.dropped, std::memory_order_relaxed);
    return Progress::done;
  }

  std::string notice() const override {
    const int64_t dropped = dropped_.load();
    return dropped ? place_.task.name + ": " + std::to_string(dropped) + " candidates with non-finite values dropped" : "";
  }

 private:
  [[noreturn]] void refuse(const std::string& wanted) {
    throw Failure(USAGE, place_.task.name + ": " + place_.settings.function + ": expected " + wanted, "write the settings again");
  }

  typename Kind::Params params_;
  Memory workspace_;
  size_t workspace_bytes_ = 0;
  std::atomic<int64_t> dropped_{0};
};

}  // namespace

std::unique_ptr<Stage> make_host_stage(const StagePlace& place) {
  const std::string& function = place.settings.function;
  if (function == "voxelise") return std::make_unique<HostStage<Voxelise>>(place);
  if (function == "decode_anchors") return std::make_unique<HostStage<DecodeAnchors>>(place);
  if (function == "decode_centres") return std::make_unique<HostStage<DecodeCentres>>(place);
  if (function == "decode_image_boxes") return std::make_unique<HostStage<DecodeImageBoxes>>(place);
  if (function == "preprocess") return std::make_unique<HostStage<Preprocess>>(place);
  throw Failure(USAGE, place.task.name + ": no host stage is called " + function, "write the settings again");
}

}  // namespace socsched
