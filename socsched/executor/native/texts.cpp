#include "texts.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace socsched {

std::string format_duration(Ns time) {
  struct Unit {
    double factor;
    const char* name;
  };
  static const Unit units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
  char text[64];
  std::snprintf(text, sizeof text, "%.4g", static_cast<double>(time));
  const double rounded = std::strtod(text, nullptr);
  const Unit* unit = units;
  while (unit->factor > 1 && std::fabs(rounded) < unit->factor) unit++;
  const double scaled = rounded / unit->factor;
  const int whole = static_cast<int>(std::to_string(static_cast<int64_t>(std::fabs(scaled))).size());
  std::snprintf(text, sizeof text, "%.*f", std::fabs(scaled) >= 1 ? std::max(4 - whole, 0) : 4, scaled);
  std::string shown = text;
  if (shown.find('.') != std::string::npos) {
    shown.erase(shown.find_last_not_of('0') + 1);
    if (shown.back() == '.') shown.pop_back();
  }
  return shown + " " + unit->name;
}

std::string words_of(const Control& control, const std::vector<int64_t>& words) {
  const int64_t a = words[5], b = words[6], c = words[7];
  const auto task_of = [&](int64_t version, int64_t task) -> const Task& {
    return control.plan(static_cast<int>(version)).tasks[static_cast<size_t>(task)];
  };
  const auto engine_of = [&](int64_t version, int64_t engine) {
    return control.plan(static_cast<int>(version)).engines[static_cast<size_t>(engine)].id;
  };
  const auto hanging = [&](const std::string& task) {
    return task + " has run for " + format_duration(b) + ", " + format_duration(c) + " planned";
  };
  const std::string replaced = " is out of service, another plan takes over";
  switch (static_cast<Text>(words[4])) {
    case Text::lost_dropout: return "dropout, as specified in the faults file";
    case Text::lost_frame: return "frame lost: its data cannot be used";
    case Text::queue_full: return std::to_string(a) + " frames wait already";
    case Text::no_data: {
      std::vector<std::string> missing;
      const std::vector<int>& needs = control.wiring(static_cast<int>(b)).needs[static_cast<size_t>(a)];
      for (size_t i = 0; i < needs.size(); i++)
        if (c >> std::min<size_t>(i, 62) & 1) missing.push_back(control.names().text(needs[i]));
      std::sort(missing.begin(), missing.end());
      std::string list;
      for (const std::string& name : missing) list += (list.empty() ? "" : ", ") + name;
      return "no data from " + list + " yet";
    }
    case Text::skipped: return "skipped: it would have been late";
    case Text::shed: return "shed: more critical stages miss their deadlines";
    case Text::work_shed: return "less critical work shed";
    case Text::too_late: return "too late to be useful";
    case Text::late: return format_duration(a) + " late";
    case Text::replaced: return "its plan was replaced";
    case Text::replaced_running: return "its plan was replaced while it ran";
    case Text::out_of_service: return engine_of(b, a) + " is out of service";
    case Text::still_running: return "still running at its deadline";
    case Text::grew:
      return "its queue grew from " + std::to_string(a) + " to " + std::to_string(b) + " in " + std::to_string(c) + " periods";
    case Text::hangs: return hanging(control.names().text(static_cast<int>(a)));
    case Text::hangs_alone: return hanging(control.names().text(static_cast<int>(a))) + "; no plan can take over";
    case Text::hangs_replaced: {
      const Task& task = task_of(a >> 20, a & ((1 << 20) - 1));
      return hanging(task.name) + "; " + engine_of(a >> 20, task.engine) + replaced;
    }
    case Text::failed: return control.message(a);
    case Text::failed_replaced: return control.message(a) + "; " + engine_of(c, b) + replaced;
    case Text::no_room: return "more jobs wait than the executor has room for";
    case Text::interrupted: return "interrupted by the user";
    case Text::level_raised: return "over its time: the high level of criticality begins";
    case Text::level_dropped: return "dropped at the high level of criticality";
    case Text::records_lost: return std::to_string(a) + " records of the journal were lost";
  }
  return "";
}

const char* word_of(Kind kind) {
  static const char* const words[] = {"miss", "drop", "abort", "input", "fault", "overload", "late"};
  return words[static_cast<size_t>(kind)];
}

const char* word_of(Status status) {
  static const char* const words[] = {"unfinished", "done", "dropped", "aborted"};
  return words[static_cast<size_t>(status)];
}

}  // namespace socsched
