// The self-test of a bundle: every stage on stored inputs, its outputs against those stored.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "realtime.hpp"
#include "control.hpp"
#include "data_slots.hpp"
#include "failure.hpp"
#include "settings.hpp"
#include "stage.hpp"

namespace socsched {

constexpr int64_t MILLION = 1'000'000;
constexpr size_t QUANTILES = 200;
constexpr double LEAST_ERROR = 0.02;
constexpr double SPARSE = 0.5;
using References = std::map<std::string, std::unique_ptr<SensorFrames>>;

// A tensor's values as numbers, where they lie or, `plainly`, those of an image by channel, row and column.
inline std::vector<float> numbers(const Tensor& tensor, bool plainly) {
  Tensor wide;
  wide.type = tensor.type;
  wide.type.dtype = Dtype::fp32;
  if (plainly) wide.type.layout = {};
  std::vector<float> values(wide.type.bytes() / sizeof(float));
  wide.data = values.data();
  convert(tensor, wide);
  return values;
}

// Places of an image that count: where a sparse image that it is made of is zero, int8 rounds a constant to either side, and deep
// layers amplify that step.  Empty: all count.
inline std::vector<bool> places(const TensorType& image, const std::vector<const Tensor*>& inputs) {
  const size_t rows = static_cast<size_t>(image.shape[2]), columns = static_cast<size_t>(image.shape[3]);
  for (const Tensor* input : inputs) {
    const size_t height = static_cast<size_t>(input->type.shape[2]), width = static_cast<size_t>(input->type.shape[3]);
    if (image.rank != 4 || input->type.rank != 4 || height % rows || width % columns) continue;
    const std::vector<float> values = numbers(*input, true);
    std::vector<bool> found(rows * columns);
    for (size_t i = 0; i < values.size(); i++)
      if (values[i] != 0) found[i / width % height / (height / rows) * columns + i % width / (width / columns)] = true;
    const auto count = static_cast<double>(std::count(found.begin(), found.end(), true));
    if (count > 0 && count < SPARSE * static_cast<double>(found.size())) return found;
  }
  return {};
}

// How far outputs may be apart: by a share of the largest value, or of the values' root mean square.
struct Allowed {
  double share;
  bool rms;
};

// Return how a tensor differs from the one wanted, empty if by no more than allowed; `inputs` are those it was made of.
inline std::string difference(const Tensor& found, const Tensor& wanted, Allowed allowed, const std::vector<const Tensor*>& inputs) {
  if (!wanted.type.elements() && wanted.type.rank == 1) return "";  // a port that does not cross a conversion
  if (!found.data) return "is missing";
  if (!found.type.lies_as(wanted.type) || found.type.rank != wanted.type.rank || found.type.bytes() != wanted.type.bytes())
    return "has another data type, layout or shape";
  if (std::memcmp(found.data, wanted.data, wanted.type.bytes()) == 0) return "";
  if (wanted.type.dtype != Dtype::fp32 && wanted.type.dtype != Dtype::fp16) return "has other values";
  const std::vector<float> values = numbers(found, allowed.rms), stored = numbers(wanted, allowed.rms);
  const std::vector<bool> counting = allowed.rms ? places(wanted.type, inputs) : std::vector<bool>();
  double largest = 0, most = 0, squares = 0, errors = 0;
  for (size_t i = 0; i < stored.size(); i++) {
    const double value = std::fabs(static_cast<double>(stored[i])), apart = std::fabs(static_cast<double>(values[i]) - static_cast<double>(stored[i]));
    if (std::isnan(apart)) return "has values that are not numbers";
    if (!counting.empty() && !counting[i % counting.size()]) continue;
    largest = std::max(largest, value);
    most = std::max(most, apart);
    squares += value * value;
    errors += apart * apart;
  }
  if (allowed.rms ? errors <= allowed.share * allowed.share * squares : most <= allowed.share * largest) return "";
  char text[200];
  if (allowed.rms)
    std::snprintf(text, sizeof text, "differs by %.1f %% of its values' root mean square, allowed are %.1f %%", 100 * std::sqrt(errors / std::max(squares, 1e-30)), 100 * allowed.share);
  else
    std::snprintf(text, sizeof text, "differs by up to %g, where values reach %g", most, largest);
  return text;
}

// Run a stage; return how its outputs differ from those stored, all of them, and its times in ns, ascending.
inline std::string run_stage(const Control& control, const Task& task, StageSettings settings, References& references, Allowed allowed, size_t repeat, std::vector<Ns>& times) {
  settings.on_host.assign(settings.outputs.size(), true);
  settings.follows.clear();
  settings.followers.clear();
  settings.inner = false;
  DataSlots slots(1, settings);
  const std::unique_ptr<Stage> stage = make_stage({task, settings, control, slots});
  stage->prepare();
  std::vector<Data*> given(control.sizes().data, nullptr);
  for (const InputSettings& input : settings.inputs) {
    const auto found = references.find(input.from);
    if (found == references.end()) return "no data are stored for " + input.from;
    given[static_cast<size_t>(control.data_number(control.names().find(input.from)))] = found->second->frame(0);
  }
  Job job;
  job.task = &task;
  job.given.data = given.data();
  job.output = slots.take();
  for (size_t i = 0; i < repeat; i++) {
    const Ns begun = monotonic_ns();
    Progress progress = stage->launch(job);
    while (progress == Progress::running) progress = stage->poll();
    times.push_back(monotonic_ns() - begun);
    if (progress == Progress::failed) {
      times.clear();
      return stage->error();
    }
  }
  std::sort(times.begin(), times.end());
  const std::vector<Tensor>& wanted = references.at(task.name)->frame(0)->ports;
  std::vector<const Tensor*> inputs;
  for (const InputSettings& input : settings.inputs) inputs.push_back(&references.at(input.from)->frame(0)->ports.at(static_cast<size_t>(input.port)));
  if (wanted.size() != job.output->ports.size()) return "it has another number of outputs than are stored";
  std::string all;
  for (size_t port = 0; port < wanted.size(); port++)
    if (const std::string why = difference(job.output->ports[port], wanted[port], allowed, inputs); !why.empty())
      all += (all.empty() ? "output " : "; output ") + std::to_string(port) + " " + why;
  return all;
}

// Append a stage's cost as socsched/cost/profile.py reads it: time to plan with is the 99th percentile.
inline void append_cost(std::string& costs, const Control& control, const Task& task, const JsonField& root, const std::vector<Ns>& times) {
  const JsonField about = root["costs"][task.name.c_str()];
  const Ns median = times[(times.size() - 1) / 2], slow = std::max(times[(times.size() * 99 + 99) / 100 - 1], Ns{1});
  costs += costs.empty() ? "\n" : ",\n";
  const auto text = [&](const char* name, const std::string& value) {
    costs += std::string("\"") + name + "\": ";
    append_json(costs, value);
    costs += ", ";
  };
  costs += "{";
  text("stage", task.name);
  text("engine", control.plan().engines[static_cast<size_t>(task.engine)].id);
  text("mode", root["mode"].text(LONGEST));
  text("precision", about["precision"].text(LONGEST));
  if (const std::string& runtime = about["runtime"].text(LONGEST); !runtime.empty()) text("runtime", runtime);
  char numbers[200];
  const double error = std::max(static_cast<double>(slow - median) / static_cast<double>(slow), LEAST_ERROR);
  std::snprintf(numbers, sizeof numbers, "\"share\": %zu, \"time_ns\": %lld, \"error\": %.3f, \"samples\": %zu, \"median_ns\": %lld, \"times_ns\": [",
                task.lanes.size(), static_cast<long long>(slow), error, times.size(), static_cast<long long>(median));
  costs += numbers;
  const size_t kept = std::min(times.size(), QUANTILES);
  for (size_t i = 0; i < kept; i++) {
    const size_t place = kept == times.size() ? i : (2 * i + 1) * times.size() / (2 * QUANTILES);
    costs += (i ? ", " : "") + std::to_string(std::max(times[place], Ns{1}));
  }
  costs += "]}";
}

inline void write_profile(const std::string& path, const std::string& platform, const std::string& costs) {
  std::string text = "{\"schema_version\": \"1\", \"platform\": ";
  append_json(text, platform);
  text += ", \"tool\": \"socsched bundle, each stage alone, p99\", \"date\": \"\", \"contention\": [], \"conversions\": [],\n\"costs\": [" + costs + "]}\n";
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  const bool whole = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if ((file && std::fclose(file) != 0) || !whole) throw Failure(MACHINE, path + ": cannot be written: " + std::strerror(errno), "free space, or name another file");
}

// Run all stages of the plan that compute, `repeat` times each, and print a line for each; return whether all outputs are
// as stored in the references (socsched/executor/references.py).  Times go to the file `profile`, if it is named.  Failure
// for references that cannot be used.
inline bool selftest(const Control& control, const std::string& path, size_t repeat, const std::string& profile) {
  const JsonFile file(path);
  file.root()["format"].one_of({"socsched-references"});
  file.root()["version"].integer(1, 1);
  const std::map<std::string, SensorSettings> stored = read_inputs(file.root()["data"], path);
  References references;
  for (const auto& [name, data] : stored) references[name] = std::make_unique<SensorFrames>(data);
  bool passed = true;
  std::string costs;
  for (const Task& task : control.plan().tasks) {
    const StageSettings& settings = control.settings().stage(0, task.name);
    if (!settings.computes() || !references.count(task.name)) continue;
    const JsonField entry = file.root()["data"][task.name.c_str()];
    const bool rms = entry.has("rms_ppm");
    const JsonField tolerance = rms ? entry["rms_ppm"] : (entry.has("tolerance_ppm") ? entry : file.root())["tolerance_ppm"];
    const Allowed allowed{static_cast<double>(tolerance.integer(0, MILLION)) / MILLION, rms};
    std::vector<Ns> times;
    const std::string why = run_stage(control, task, settings, references, allowed, repeat, times);
    passed &= why.empty();
    char took[40] = "";
    if (!times.empty()) std::snprintf(took, sizeof took, " (%.3f ms)", static_cast<double>(times[times.size() / 2]) / 1e6);
    if (why.empty())
      std::printf("%s: passed, %.3f ms\n", task.name.c_str(), static_cast<double>(times[times.size() / 2]) / 1e6);
    else
      std::printf("%s: FAILED: %s%s\n", task.name.c_str(), why.c_str(), took);
    std::fflush(stdout);
    if (!profile.empty() && why.empty() && file.root()["costs"].has(task.name.c_str()))
      append_cost(costs, control, task, file.root(), times);
  }
  if (!profile.empty()) write_profile(profile, file.root()["platform"].text(LONGEST), costs);
  return passed;
}

}  // namespace socsched
