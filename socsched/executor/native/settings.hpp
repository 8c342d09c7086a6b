// The settings of a run (run.json): how the stages of a plan are executed, for how long, and what happens under load.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "failure.hpp"
#include "job.hpp"
#include "plan.hpp"
#include "tensor.hpp"

namespace socsched {

constexpr size_t MOST_PARTS = 64;

// A type with sizes of 1 where they are free.
inline TensorType of_a_row(TensorType type) {
  std::replace(type.shape.begin(), type.shape.begin() + type.rank, int64_t{-1}, int64_t{1});
  return type;
}

// Read a shape; `free`: how many sizes, from the first on, may be -1.
inline void read_shape(const JsonField& from, TensorType& type, int free) {
  double elements = 1;
  for (const JsonField& size : from.items(MOST_RANK)) {
    const int64_t value = size.integer(-1, MOST_ELEMENTS);
    if (value < 0 && type.rank >= free) from.fail("expected a fixed size");
    type.shape[static_cast<size_t>(type.rank++)] = value;
    elements *= static_cast<double>(std::max(value, int64_t{1}));
  }
  if (elements > static_cast<double>(MOST_ELEMENTS)) from.fail("expected at most 2^31 elements");
  if (of_a_row(type).bytes() == TOO_LARGE) from.fail("expected at most 4 GiB with this layout");
}

inline std::vector<uint8_t> read_bytes(const JsonField& from) {
  const std::string& text = from.text(LONGEST);
  const auto digit = [&](char c) {
    const size_t value = std::string("0123456789abcdef").find(c);
    if (value == std::string::npos) from.fail("expected hexadecimal digits");
    return static_cast<uint8_t>(value);
  };
  if (text.size() % 2) from.fail("expected an even number of hexadecimal digits");
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < text.size(); i += 2) bytes.push_back(static_cast<uint8_t>(digit(text[i]) << 4 | digit(text[i + 1])));
  return bytes;
}

// The scale of a tensor that the artefact has in int8, 0 if it has the executor's type; fp32 as bits.
inline float read_scale(const JsonField& from, const TensorType& type) {
  if (!from.has("scale_bits")) return 0;
  const uint32_t bits = static_cast<uint32_t>(from["scale_bits"].integer(0, UINT32_MAX));
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  if (!std::isnormal(scale) || scale < 0 || type.dtype != Dtype::fp32) from["scale_bits"].fail("expected a positive scale of floats");
  return scale;
}

// Whether outputs begin with boxes [n, width], scores [n] and labels [n].
inline bool are_detections(const std::vector<TensorType>& outputs) {
  const auto is = [&](size_t port, Dtype dtype, int rank) { return outputs[port].dtype == dtype && outputs[port].rank == rank; };
  return outputs.size() >= 3 && is(0, Dtype::fp32, 2) && is(1, Dtype::fp32, 1) && is(2, Dtype::int32, 1);
}

constexpr size_t MOST_PLANS = 64;
constexpr int64_t MOST_THREADS = 1024;

inline Term term_of(const JsonField& from) {
  const std::string name = from.one_of(term_names());
  return static_cast<Term>(std::find(term_names().begin(), term_names().end(), name) - term_names().begin());
}

constexpr size_t MOST = 100'000, MOST_PORTS = 64;  // entries of a list in run.json, tensors of a stage

// How a policy preempts: as its engines do, never, or by a mechanism of its own.
enum class Preemption { as_engine, never, mechanism };

// Where jobs run: on their planned lanes; also on equal lanes that other tasks use, if those are idle (`steal`); on any of a
// number of threads that run all stages; or on the one of these that has their frame.
enum class Places { planned, equal, any_thread, thread_of_frame };

enum class OnOverload { none, skip, abort, degrade };

// An input of a stage: a port of another stage or of a sensor, and the form in which the stage takes it.
struct InputSettings {
  std::string from;
  size_t port = 0;
  TensorType type;
};

// How a stage is made executable: `spin` (busy for a time), `sleep`, `call` (a function of a shared object), `host` (a
// function of stages.h), `network` (compiled for a CPU), `convert` (data types and layouts of another stage's outputs), `cuda`
// (launch lists), `load` (of a cuda stage's weights), `engine` (an artefact that an adapter runs, see adapter.h), or `callback`
// (by the process that started this one).
struct StageSettings {
  std::string kind = "spin", title, shared_object, function;
  Ns time = -1, cheap_time = -1;   // of spin and sleep; -1: the planned cost
  std::vector<InputSettings> inputs;
  std::vector<TensorType> outputs;
  std::vector<uint8_t> params;     // of a host stage: a struct of stages.h
  int threads = 0;                 // of a network; 0: the lanes of the task
  std::vector<TensorType> code_inputs, code_outputs;  // of a network: the forms in which its kernels take and return them
  bool records = false;            // whether its outputs are boxes, scores and labels to record
  std::vector<std::string> programs;  // launch lists: of a network one, of a cuda stage for one architecture each, preferred ones first
  std::vector<bool> on_host;       // of a cuda or engine stage, by output: whether the host reads it
  std::vector<bool> on_gpu;        // of an engine stage, by output: whether stages read it where it lies on the first GPU
  int device = 0;                  // of a cuda stage: the number of its GPU
  Ns longest = 0;                  // of a cuda stage: the most that graphs queued at once may take, 0: it is one graph
  size_t queued = 1;               // of a cuda stage: the most graphs queued at once
  size_t groups = 0;               // of a cuda stage: those of SMs that its GPU is divided into, of which it has its lanes; 0: none
  bool inner = false;              // of a cuda stage: whether only stages of its frame read its outputs
  bool shown = true;               // of one that follows or is followed: whether its end is looked for as it comes
  std::string follows;             // of a cuda stage: the stage that starts its kernels, within its own graph; else empty
  size_t part = 0;                 // of one that follows: its number among them, from 1
  std::vector<std::pair<std::string, StageSettings>> followers;  // of a cuda stage: those that it starts, in their order
  int slot = -1;                   // of a load, and of a cuda stage whose weights are loaded for every frame: the memory that they take turns in
  uint64_t slot_bytes = 0;         // of that memory
  std::string loads;               // of a load: the stage whose weights it copies
  int marks = -1, least_mark = 0;  // of a cuda stage: the output whose values from `least_mark` on mark the rows in use
  std::string adapter, artefact;   // of an engine; `shared_object` is the vendor's library, or the adapter itself
  std::map<std::string, std::string> options;  // of an engine, for its adapter
  std::vector<std::string> input_names, output_names;  // of an engine: the tensors in its artefact
  std::vector<float> input_scales, output_scales;       // of tensors that are int8 in the artefact, else 0
  std::vector<int> channels;       // of a callback, by place (`Wiring::places`): the socket over which it is called
  std::shared_ptr<const StageSettings> cheaper;  // of a network: its variant for jobs that would be late, if it has one
  std::vector<int> observers;      // by place: the socket over which its outputs are shown; empty: they are not

  // Whether any thread of its lanes can run its jobs.
  bool takes_any_thread() const { return kind != "sleep" && kind != "engine" && kind != "callback"; }

  // Whether a job can stop between its kernels.
  bool stops_between_kernels() const { return kind == "network" || (kind == "cuda" && longest > 0); }
  bool computes() const { return kind != "spin" && kind != "sleep" && kind != "call"; }
};

// One frame of a sensor: the shapes of its tensors, which lie in turn in the file; with a problem it is lost.
struct FrameSettings {
  std::vector<TensorType> ports;
  std::string problem;
};

// The frames of a sensor, repeated in turn, or through the socket `feed`; `warm` is usable.
struct SensorSettings {
  int feed = -1;         // -1: they are in the file
  bool is_live = false;  // frames of the feed are released as they arrive, instead of at planned times
  std::string file;
  std::vector<FrameSettings> frames;
  FrameSettings warm;
};

// A failure to inject: the first job on some lanes of an engine from `at` on hangs, or fails.
struct InjectedFailure {
  std::string engine;
  std::vector<int> lanes;  // empty: any
  Ns at = 0;
  bool hangs = false;
};

// Jobs that take `factor` times as long: those of an engine that begin in a window, or single ones of a stage.
struct Prolonging {
  std::string engine, stage;  // empty: any
  Ns from = 0, until = 0;
  double factor = 1;
  std::vector<int64_t> jobs;  // of the stage, in the order they are begun, ascending
};

struct Dropout {
  int provider = -1;
  Ns from = 0, until = 0;
};

struct Settings {
  std::string plan;
  std::vector<std::string> limp_home;                  // plan files, best first
  std::map<std::string, Order> orders;                 // by policy
  std::map<std::string, Preemption> preemption;        // by policy; as its engines do if absent
  std::map<std::string, std::vector<std::string>> needs;  // task -> stages and sensors whose data it cannot do without
  std::map<std::string, StageSettings> stages;         // by task
  std::vector<std::map<std::string, StageSettings>> limp_home_stages;  // by limp-home plan, where they differ
  std::map<std::string, SensorSettings> inputs;        // by sensor
  std::map<std::string, std::vector<int>> processors;  // engine -> the processor of each lane
  std::map<std::string, OnOverload> overload;          // by task
  std::map<std::string, std::vector<Ns>> times;        // virtual clock: execution times of a task's jobs, in turn
  std::vector<InjectedFailure> failures;
  std::vector<Dropout> dropouts;
  std::vector<Prolonging> prolongings;
  Ns horizon = 0, hang = 0, awake = -1, shed = 0;
  int shed_below = 0;                                  // a Criticality; 0: nothing is shed
  int64_t seed = 0;
  bool shield = false;
  bool alone = false;                                  // one job at a time, whatever its lanes
  Places places = Places::planned;
  std::vector<std::vector<std::string>> equal_engines; // groups of those that differ in name only
  int threads = 1;                                     // of `any_thread` and `thread_of_frame`
  int in_flight = 0;                                   // frames in progress at once, released as soon as there is room; 0: at their rates
  std::string realtime = "off";

  // Whether frames are released as they arrive.
  bool is_live() const {
    return std::any_of(inputs.begin(), inputs.end(), [](const auto& entry) { return entry.second.is_live; });
  }

  // The stage of a task in plan number `version`; a load of its planned time unless the file names another kind.
  const StageSettings& stage(int version, const std::string& task) const {
    static const StageSettings load;
    if (version > 0 && static_cast<size_t>(version) <= limp_home_stages.size()) {
      const auto& own = limp_home_stages[static_cast<size_t>(version) - 1];
      if (const auto found = own.find(task); found != own.end()) return found->second;
    }
    const auto found = stages.find(task);
    return found == stages.end() ? load : found->second;
  }
};

// The parts of run.json that describe stages and the frames of sensors.

// The path of a file named in the settings, relative to their folder.
inline std::string path_next_to(const std::string& settings, const std::string& name) {
  const size_t slash = settings.rfind('/');
  return name.empty() || name[0] == '/' || slash == std::string::npos ? name : settings.substr(0, slash + 1) + name;
}

// The type of a tensor; `free`: how many of its sizes, from the first on, may be -1.
inline TensorType read_type(const JsonField& from, int free) {
  TensorType type;
  const std::string dtype = from["dtype"].one_of(dtype_names());
  type.dtype = static_cast<Dtype>(std::find(dtype_names().begin(), dtype_names().end(), dtype) - dtype_names().begin());
  if (!parse_layout(from["layout"].text(LONGEST), type.layout)) from["layout"].fail("expected NCHW, NHWC or NCHW16c, each with +1 for a border");
  read_shape(from["shape"], type, free);
  return type;
}

inline void read_network(const JsonField& from, const std::string& path, StageSettings& stage) {
  stage.programs.push_back(path_next_to(path, from["program"].text(LONGEST)));
  stage.threads = static_cast<int>(from["threads"].integer(0, 1024));
  for (const InputSettings& input : stage.inputs) stage.code_inputs.push_back(input.type);
  stage.code_outputs = stage.outputs;
  for (const char* side : {"code_inputs", "code_outputs"}) {
    if (!from.has(side)) continue;
    std::vector<TensorType>& types = side[5] == 'i' ? stage.code_inputs : stage.code_outputs;
    const std::vector<JsonField> entries = from[side].items(MOST_PORTS);
    if (entries.size() != types.size()) from[side].fail("expected a form for each");
    for (size_t i = 0; i < types.size(); i++) {
      const TensorType given = types[i];
      types[i] = read_type(entries[i], 1);
      if (given.rank != types[i].rank || of_a_row(given.form(types[i])).bytes() != of_a_row(types[i]).bytes())
        entries[i]["shape"].fail(std::string("expected the size of this ") + (side[5] == 'i' ? "input" : "output"));
    }
  }
}

inline StageSettings read_stage(const JsonField& from, const std::string& path);

inline void read_cuda(const JsonField& from, const std::string& path, StageSettings& stage) {
  for (const std::string& program : from["programs"].texts(64, LONGEST)) stage.programs.push_back(path_next_to(path, program));
  for (const JsonField& entry : from["outputs"].items(MOST_PORTS)) stage.on_host.push_back(entry["on_host"].boolean());
  stage.longest = from.has("longest_ns") ? from["longest_ns"].integer(0, MOST_NS) : 0;
  if (from.has("device")) stage.device = static_cast<int>(from["device"].integer(0, 63));
  if (from.has("groups")) stage.groups = static_cast<size_t>(from["groups"].integer(0, 1024));
  if (from.has("inner")) stage.inner = from["inner"].boolean();
  if (from.has("shown")) stage.shown = from["shown"].boolean();
  if (from.has("follows")) {
    stage.follows = from["follows"].text(LONGEST);
    stage.part = static_cast<size_t>(from["part"].integer(1, MOST_PARTS));
  }
  if (from.has("followers"))
    for (const JsonField& entry : from["followers"].items(MOST_PARTS)) {
      StageSettings follower = read_stage(entry["stage"], path);
      if (follower.kind != "cuda" || follower.part != stage.followers.size() + 1) entry.fail("expected a stage of the same GPU that follows, in turn");
      stage.followers.emplace_back(entry["task"].text(LONGEST), std::move(follower));
    }
  if (from.has("queued")) stage.queued = static_cast<size_t>(from["queued"].integer(1, 64));
  const int64_t last = static_cast<int64_t>(stage.outputs.size()) - 1;
  if (!from.has("marks")) return;
  stage.marks = static_cast<int>(from["marks"]["output"].integer(0, last));
  stage.least_mark = static_cast<int>(from["marks"]["least"].integer(0, 1));
  if (const TensorType& type = stage.outputs[static_cast<size_t>(stage.marks)]; type.dtype != Dtype::int32 || type.rank != 1 || type.shape[0] < 0)
    from["marks"].fail("expected an output of a fixed number of int32");
}

inline void read_engine_stage(const JsonField& from, const std::string& path, StageSettings& stage) {
  stage.adapter = from["adapter"].text(LONGEST);
  stage.artefact = path_next_to(path, from["artefact"].text(LONGEST));
  stage.shared_object = from["library"].text(LONGEST);
  if (stage.shared_object.find('/') != std::string::npos) stage.shared_object = path_next_to(path, stage.shared_object);
  for (const auto& [name, value] : from["options"].fields(64)) stage.options[name] = value.text(LONGEST);
  for (const JsonField& entry : from["inputs"].items(MOST_PORTS)) {
    stage.input_names.push_back(entry["name"].text(LONGEST));
    stage.input_scales.push_back(read_scale(entry, stage.inputs[stage.input_scales.size()].type));
  }
  for (const JsonField& entry : from["outputs"].items(MOST_PORTS)) {
    stage.output_names.push_back(entry["name"].text(LONGEST));
    stage.output_scales.push_back(read_scale(entry, stage.outputs[stage.output_scales.size()]));
    stage.on_host.push_back(!entry.has("on_host") || entry["on_host"].boolean());
    stage.on_gpu.push_back(entry.has("on_gpu") && entry["on_gpu"].boolean());
  }
}

// The memory of weights that a stage loads, or that are loaded for it.
inline void read_slot(const JsonField& from, StageSettings& stage) {
  stage.slot = static_cast<int>(from["slot"]["number"].integer(0, MOST));
  stage.slot_bytes = static_cast<uint64_t>(from["slot"]["bytes"].integer(0, MOST_NS));
  if (from.has("device")) stage.device = static_cast<int>(from["device"].integer(0, 63));
}

inline StageSettings read_stage(const JsonField& from, const std::string& path) {
  StageSettings stage;
  stage.kind = from["kind"].one_of({"spin", "sleep", "call", "host", "network", "convert", "cuda", "load", "opencl", "engine", "callback"});
  if (from.has("title")) stage.title = from["title"].text(LONGEST);
  for (const auto& [name, sockets] : {std::pair{"channels", &stage.channels}, std::pair{"observers", &stage.observers}})
    if (from.has(name))
      for (const JsonField& socket : from[name].items(MOST_PORTS)) sockets->push_back(static_cast<int>(socket.integer(0, MOST)));
  if (from.has("time_ns")) stage.time = from["time_ns"].integer(0, MOST_NS);
  if (from.has("cheap_time_ns")) stage.cheap_time = from["cheap_time_ns"].integer(0, MOST_NS);
  if (stage.kind == "call") stage.shared_object = path_next_to(path, from["library"].text(LONGEST));
  if (stage.kind == "call" || stage.kind == "host") stage.function = from["function"].text(LONGEST);
  if (stage.kind == "host") stage.params = read_bytes(from["params"]);
  if (stage.kind == "load") stage.loads = from["loads"].text(LONGEST);
  if (stage.kind == "load" || from.has("slot")) read_slot(from, stage);
  if (!stage.computes()) return stage;
  for (const JsonField& entry : from["inputs"].items(MOST_PORTS))
    stage.inputs.push_back({entry["from"].text(LONGEST), static_cast<size_t>(entry["port"].integer(0, MOST_PORTS - 1)), read_type(entry, MOST_RANK)});
  if (stage.kind != "convert")
    for (const JsonField& entry : from["outputs"].items(MOST_PORTS)) stage.outputs.push_back(read_type(entry, stage.kind == "host" ? 0 : stage.kind == "callback" ? MOST_RANK : 1));
  if (stage.kind == "network") read_network(from, path, stage);
  if (stage.kind == "cuda" || stage.kind == "opencl") read_cuda(from, path, stage);
  if (stage.kind == "engine") read_engine_stage(from, path, stage);
  if (from.has("cheaper")) {
    stage.cheaper = std::make_shared<StageSettings>(read_stage(from["cheaper"], path));
    if (stage.kind != "network" || stage.cheaper->kind != "network" || stage.cheaper->cheaper || stage.cheaper->outputs.size() != stage.outputs.size())
      from["cheaper"].fail("expected another network with the same outputs");
  }
  if (from.has("records")) stage.records = from["records"].boolean();
  if (stage.records && !are_detections(stage.outputs)) from["records"].fail("expected false: the first outputs are no boxes, scores and labels");
  return stage;
}

inline FrameSettings read_frame(const JsonField& from, const std::vector<TensorType>& ports) {
  FrameSettings frame;
  if (from.has("problem")) frame.problem = from["problem"].text(LONGEST);
  if (!frame.problem.empty()) return frame;
  const std::vector<JsonField> shapes = from["shapes"].items(MOST_PORTS);
  if (shapes.size() != ports.size()) from["shapes"].fail("expected a shape for every port");
  for (size_t i = 0; i < ports.size(); i++) {
    TensorType type = ports[i];
    type.rank = 0;
    read_shape(shapes[i], type, 0);
    frame.ports.push_back(type);
  }
  return frame;
}

inline InjectedFailure read_failure(const JsonField& from) {
  InjectedFailure failure;
  failure.engine = from["engine"].text(LONGEST);
  for (const JsonField& lane : from["lanes"].items(1024)) failure.lanes.push_back(static_cast<int>(lane.integer(0, 1023)));
  failure.at = from["at_ns"].integer(0, MOST_NS);
  failure.hangs = from["kind"].one_of({"hang", "fail"}) == "hang";
  return failure;
}

inline Prolonging read_prolonging(const JsonField& from) {
  Prolonging found;
  found.engine = from["engine"].text(LONGEST);
  found.stage = from["stage"].text(LONGEST);
  found.from = from["from_ns"].integer(0, MOST_NS);
  found.until = from["until_ns"].integer(0, MOST_NS);
  found.factor = static_cast<double>(from["factor_millionths"].integer(1'000'000, INT64_MAX)) / 1e6;
  for (const JsonField& job : from["jobs"].items(MOST)) found.jobs.push_back(job.integer(0, INT64_MAX));
  return found;
}

inline void read_overload(const JsonField& from, Settings& settings) {
  for (const auto& [task, policy] : from["stages"].fields(MOST)) {
    const std::string name = policy.one_of({"skip", "abort", "degrade"});
    settings.overload[task] = name == "skip" ? OnOverload::skip : name == "abort" ? OnOverload::abort : OnOverload::degrade;
  }
  const std::string below = from["shed_below"].one_of({"", "soft", "firm", "hard"});
  settings.shed_below = below == "hard" ? HARD : below == "firm" ? FIRM : SOFT;
  settings.shed = from["shed_ns"].integer(0, MOST_NS);
}

inline std::map<std::string, StageSettings> read_stages(const JsonField& from, const std::string& path) {
  std::map<std::string, StageSettings> stages;
  for (const auto& [task, stage] : from.fields(MOST)) stages[task] = read_stage(stage, path);
  return stages;
}

inline std::map<std::string, SensorSettings> read_inputs(const JsonField& from, const std::string& path) {
  std::map<std::string, SensorSettings> inputs;
  for (const auto& [name, entry] : from.fields(MOST)) {
    SensorSettings& sensor = inputs[name];
    std::vector<TensorType> ports;
    for (const JsonField& port : entry["ports"].items(MOST_PORTS)) ports.push_back(read_type(port, MOST_RANK));
    sensor.file = path_next_to(path, entry["file"].text(LONGEST));
    if (entry.has("feed")) sensor.feed = static_cast<int>(entry["feed"].integer(0, MOST));
    if (entry.has("live")) sensor.is_live = entry["live"].boolean();
    for (const JsonField& frame : entry["frames"].items(MOST)) sensor.frames.push_back(read_frame(frame, ports));
    sensor.warm = read_frame(entry["warm"], ports);
    if (sensor.frames.empty() && sensor.feed < 0) entry["frames"].fail("expected at least one frame");
    if (!sensor.warm.problem.empty()) entry["warm"].fail("expected a usable frame");
  }
  return inputs;
}

// Return the settings of a file; Failure with the position of what is wrong in it.
inline Settings read_settings(const std::string& path, Names& names) {
  const JsonFile file(path);
  const JsonField root = file.root();
  root["format"].one_of({"socsched-run"});
  root["version"].integer(1, 1);
  Settings settings;
  settings.plan = path_next_to(path, root["plan"].text(LONGEST));
  for (const std::string& name : root["limp_home"].texts(MOST_PLANS, LONGEST)) settings.limp_home.push_back(path_next_to(path, name));
  for (const auto& [policy, terms] : root["orders"].fields(1000)) {
    const std::vector<JsonField> both = terms.items(2);
    if (both.size() != 2) terms.fail("expected two terms");
    settings.orders[policy] = {term_of(both[0]), term_of(both[1])};
  }
  if (root.has("preemption"))
    for (const auto& [policy, how] : root["preemption"].fields(1000)) {
      const std::string name = how.one_of({"as-engine", "never", "mechanism"});
      settings.preemption[policy] = name == "never" ? Preemption::never : name == "mechanism" ? Preemption::mechanism : Preemption::as_engine;
    }
  for (const auto& [task, needed] : root["needs"].fields(MOST)) settings.needs[task] = needed.texts(MOST, LONGEST);
  settings.stages = read_stages(root["stages"], path);
  if (root.has("limp_home_stages"))
    for (const JsonField& stages : root["limp_home_stages"].items(MOST_PLANS)) settings.limp_home_stages.push_back(read_stages(stages, path));
  if (root.has("inputs")) settings.inputs = read_inputs(root["inputs"], path);
  for (const auto& [engine, lanes] : root["processors"].fields(1024))
    for (const JsonField& lane : lanes.items(1024))
      settings.processors[engine].push_back(static_cast<int>(lane.integer(-1, 1 << 20)));
  read_overload(root["overload"], settings);
  for (const JsonField& failure : root["failures"].items(1000)) settings.failures.push_back(read_failure(failure));
  if (root.has("prolongings"))
    for (const JsonField& prolonging : root["prolongings"].items(1000)) settings.prolongings.push_back(read_prolonging(prolonging));
  for (const JsonField& dropout : root["dropouts"].items(1000))
    settings.dropouts.push_back({names.number(dropout["sensor"].text(LONGEST)), dropout["from_ns"].integer(0, MOST_NS),
                                 dropout["until_ns"].integer(0, MOST_NS)});
  if (root.has("times"))
    for (const auto& [task, times] : root["times"].fields(MOST))
      for (const JsonField& time : times.items(MOST)) settings.times[task].push_back(time.integer(-MOST_NS, MOST_NS));
  settings.horizon = root["horizon_ns"].integer(0, MOST_NS);
  settings.hang = root["hang_ns"].integer(0, MOST_NS);
  settings.awake = root["awake_ns"].integer(-1, MOST_NS);
  settings.seed = root["seed"].integer(INT64_MIN, INT64_MAX);
  settings.shield = root["shield"].boolean();
  if (root.has("alone")) settings.alone = root["alone"].boolean();
  if (root.has("places")) {
    static const std::vector<std::string> names{"planned", "equal", "any-thread", "thread-of-frame"};
    settings.places = static_cast<Places>(std::find(names.begin(), names.end(), root["places"].one_of(names)) - names.begin());
    for (const JsonField& group : root["equal_engines"].items(1024)) settings.equal_engines.push_back(group.texts(1024, LONGEST));
    settings.threads = static_cast<int>(root["threads"].integer(1, MOST_THREADS));
  }
  if (root.has("in_flight")) settings.in_flight = static_cast<int>(root["in_flight"].integer(0, MOST_GROUPS / 2));
  settings.realtime = root["realtime"].one_of({"off", "auto", "fifo", "deadline"});
  return settings;
}

}  // namespace socsched
