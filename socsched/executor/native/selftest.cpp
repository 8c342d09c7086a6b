#include "selftest.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "clock.hpp"
#include "data_slots.hpp"
#include "failure.hpp"
#include "settings_data.hpp"
#include "stage.hpp"

namespace socsched {

namespace {

constexpr int64_t MILLION = 1'000'000;

using References = std::map<std::string, std::unique_ptr<SensorFrames>>;

// A tensor's values as numbers.
std::vector<float> numbers(const Tensor& tensor) {
  Tensor wide;
  wide.type = tensor.type;
  wide.type.dtype = Dtype::fp32;
  std::vector<float> values(wide.type.bytes() / sizeof(float));
  wide.data = values.data();
  convert(tensor, wide);
  return values;
}

// Return how a tensor differs from the one wanted, empty if by no more than `tolerance` of the largest value.
std::string difference(const Tensor& found, const Tensor& wanted, double tolerance) {
  if (!wanted.type.elements() && wanted.type.rank == 1) return "";  // a port that does not cross a conversion
  if (!found.data) return "is missing";
  if (!found.type.lies_as(wanted.type) || found.type.rank != wanted.type.rank || found.type.bytes() != wanted.type.bytes())
    return "has another data type, layout or shape";
  if (std::memcmp(found.data, wanted.data, wanted.type.bytes()) == 0) return "";
  if (wanted.type.dtype != Dtype::fp32 && wanted.type.dtype != Dtype::fp16) return "has other values";
  const std::vector<float> values = numbers(found), stored = numbers(wanted);
  double largest = 0, most = 0;
  for (size_t i = 0; i < stored.size(); i++) {
    const double apart = std::fabs(static_cast<double>(values[i]) - static_cast<double>(stored[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(stored[i])));
    if (std::isnan(apart)) return "has values that are not numbers";
    most = std::max(most, apart);
  }
  if (most <= tolerance * largest) return "";
  char text[100];
  std::snprintf(text, sizeof text, "differs by up to %g, where values reach %g", most, largest);
  return text;
}

// Run a stage; return how its outputs differ from those stored, all of them, and set its median time in ns.
std::string run_stage(const Control& control, const Task& task, StageSettings settings, References& references, double tolerance, int repeat, Ns& median) {
  settings.on_host.assign(settings.outputs.size(), true);
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
  std::vector<Ns> times;
  for (int i = 0; i < repeat; i++) {
    const Ns begun = monotonic_ns();
    Progress progress = stage->launch(job);
    while (progress == Progress::running) progress = stage->poll();
    times.push_back(monotonic_ns() - begun);
    if (progress == Progress::failed) return stage->error();
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  median = times[static_cast<size_t>(repeat / 2)];
  const std::vector<Tensor>& wanted = references.at(task.name)->frame(0)->ports;
  if (wanted.size() != job.output->ports.size()) return "it has another number of outputs than are stored";
  std::string all;
  for (size_t port = 0; port < wanted.size(); port++)
    if (const std::string why = difference(job.output->ports[port], wanted[port], tolerance); !why.empty())
      all += (all.empty() ? "output " : "; output ") + std::to_string(port) + " " + why;
  return all;
}

}  // namespace

bool selftest(const Control& control, const std::string& path, int repeat) {
  const JsonFile file(path);
  file.root()["format"].one_of({"socsched-references"});
  file.root()["version"].integer(1, 1);
  const double tolerance = static_cast<double>(file.root()["tolerance_ppm"].integer(0, MILLION)) / MILLION;
  const std::map<std::string, SensorSettings> stored = read_inputs(file.root()["data"], path);
  References references;
  for (const auto& [name, data] : stored) references[name] = std::make_unique<SensorFrames>(data);
  bool passed = true;
  for (const Task& task : control.plan().tasks) {
    const StageSettings& settings = control.settings().stage(0, task.name);
    if (!settings.computes() || !references.count(task.name)) continue;
    Ns median = 0;
    const std::string why = run_stage(control, task, settings, references, tolerance, repeat, median);
    passed &= why.empty();
    if (why.empty())
      std::printf("%s: passed, %.3f ms\n", task.name.c_str(), static_cast<double>(median) / 1e6);
    else
      std::printf("%s: FAILED: %s (%.3f ms)\n", task.name.c_str(), why.c_str(), static_cast<double>(median) / 1e6);
  }
  return passed;
}

}  // namespace socsched
