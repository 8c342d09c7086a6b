// The settings of a run (run.json): how the stages of a plan are executed, for how long, and what happens under load.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "order.hpp"
#include "plan.hpp"
#include "tensor.hpp"

namespace socsched {

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

  bool is_live() const;  // whether frames are released as they arrive

  // The stage of a task in plan number `version`; a load of its planned time unless the file names another kind.
  const StageSettings& stage(int version, const std::string& task) const;
};

// Return the settings of a file; Failure with the position of what is wrong in it.
Settings read_settings(const std::string& path, Names& names);

// The parts of run.json that describe stages and the frames of sensors.

// The path of a file named in the settings, relative to their folder.
std::string path_next_to(const std::string& settings, const std::string& name);

// The type of a tensor; `free`: how many of its sizes, from the first on, may be -1.
TensorType read_type(const JsonField& from, int free);

std::map<std::string, StageSettings> read_stages(const JsonField& from, const std::string& path);
std::map<std::string, SensorSettings> read_inputs(const JsonField& from, const std::string& path);

}  // namespace socsched
