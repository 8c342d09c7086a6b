#include "settings.hpp"

#include <algorithm>

#include "failure.hpp"
#include "ledger.hpp"
#include "settings_data.hpp"

namespace socsched {

namespace {

constexpr size_t MOST_PLANS = 64;
constexpr int64_t MOST_THREADS = 1024;

Term term_of(const JsonField& from) {
  const std::string name = from.one_of(term_names());
  return static_cast<Term>(std::find(term_names().begin(), term_names().end(), name) - term_names().begin());
}

InjectedFailure read_failure(const JsonField& from) {
  InjectedFailure failure;
  failure.engine = from["engine"].text(LONGEST);
  for (const JsonField& lane : from["lanes"].items(1024)) failure.lanes.push_back(static_cast<int>(lane.integer(0, 1023)));
  failure.at = from["at_ns"].integer(0, MOST_NS);
  failure.hangs = from["kind"].one_of({"hang", "fail"}) == "hang";
  return failure;
}

Prolonging read_prolonging(const JsonField& from) {
  Prolonging found;
  found.engine = from["engine"].text(LONGEST);
  found.stage = from["stage"].text(LONGEST);
  found.from = from["from_ns"].integer(0, MOST_NS);
  found.until = from["until_ns"].integer(0, MOST_NS);
  found.factor = static_cast<double>(from["factor_millionths"].integer(1'000'000, INT64_MAX)) / 1e6;
  for (const JsonField& job : from["jobs"].items(MOST)) found.jobs.push_back(job.integer(0, INT64_MAX));
  return found;
}

void read_overload(const JsonField& from, Settings& settings) {
  for (const auto& [task, policy] : from["stages"].fields(MOST)) {
    const std::string name = policy.one_of({"skip", "abort", "degrade"});
    settings.overload[task] = name == "skip" ? OnOverload::skip : name == "abort" ? OnOverload::abort : OnOverload::degrade;
  }
  const std::string below = from["shed_below"].one_of({"", "soft", "firm", "hard"});
  settings.shed_below = below == "hard" ? HARD : below == "firm" ? FIRM : SOFT;
  settings.shed = from["shed_ns"].integer(0, MOST_NS);
}

}  // namespace

const StageSettings& Settings::stage(int version, const std::string& task) const {
  static const StageSettings load;
  if (version > 0 && static_cast<size_t>(version) <= limp_home_stages.size()) {
    const auto& own = limp_home_stages[static_cast<size_t>(version) - 1];
    if (const auto found = own.find(task); found != own.end()) return found->second;
  }
  const auto found = stages.find(task);
  return found == stages.end() ? load : found->second;
}

bool Settings::is_live() const {
  return std::any_of(inputs.begin(), inputs.end(), [](const auto& entry) { return entry.second.is_live; });
}

Settings read_settings(const std::string& path, Names& names) {
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
