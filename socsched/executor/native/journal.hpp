// The growing trace of a run in a file that survives the end of the process: journal.jsonl of socsched/runtime/journal.py.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "control.hpp"
#include "failure.hpp"
#include "job.hpp"
#include "json.hpp"

namespace socsched {

// Boxes, scores and labels that stages found, in a file of JSON lines: detections.jsonl.
constexpr size_t MOST_SOURCES = 64;
constexpr size_t MOST_WORDS = size_t{1} << 16;  // of a record; a quarter of a ring

// Nine digits hold a float exactly.  Values of usual size are scaled to an integer of nine digits: its error, a hundredth
// of a unit in a rare case, leaves the nearest float the same, and printf takes eight times as long.
inline void add_float(std::string& text, float value) {
  static const double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
  char digits[32];
  const double size = std::fabs(static_cast<double>(value));
  if (!(size >= 1e-4 && size < 1e8)) {
    std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(value));
    text += std::isnan(value) ? "NaN" : std::isinf(value) ? (value < 0 ? "-Infinity" : "Infinity") : digits;
    return;
  }
  int after = 12;  // digits after the point
  while (size * powers[after] >= 1e9) after--;
  uint32_t scaled = static_cast<uint32_t>(size * powers[after] + 0.5);
  while (after > 0 && scaled % 10 == 0) scaled /= 10, after--;
  char* at = digits + sizeof digits;
  for (int n = 0; scaled || n <= after; n++) {
    if (n == after && n) *--at = '.';
    *--at = static_cast<char>('0' + scaled % 10);
    scaled /= 10;
  }
  if (value < 0) *--at = '-';
  text.append(at, digits + sizeof digits);
}

class Detections {
 public:
  explicit Detections(std::string path) : path_(std::move(path)) {}

  ~Detections() {
    if (file_ >= 0) ::close(file_);
  }

  Detections(const Detections&) = delete;
  Detections& operator=(const Detections&) = delete;

  // Before the run: a stage whose first three outputs are boxes, scores and labels; returns its number.
  size_t add(const std::string& stage) {
    if (sources_.size() == MOST_SOURCES) throw Failure(USAGE, "more than 64 stages have boxes to record", "record fewer of them");
    if (file_ < 0) {
      file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
      if (file_ < 0) throw Failure(MACHINE, path_ + ": cannot be written: " + std::strerror(errno), "check permissions and free space");
    }
    Source& source = *sources_.emplace_back(std::make_unique<Source>());
    source.stage = stage;
    source.words.resize(MOST_WORDS);
    return sources_.size() - 1;
  }

  // Note the outputs of a job; called by one thread at a time for each stage, and neither allocates nor waits.
  void note(size_t stage, int64_t frame, const Data& outputs) {
    Source& source = *sources_[stage];
    const Tensor &boxes = outputs.ports[0], &scores = outputs.ports[1], &labels = outputs.ports[2];
    const int64_t count = scores.type.shape[0], width = boxes.type.shape[1];
    const bool whole = boxes.data && scores.data && labels.data && boxes.type.elements() == count * width && labels.type.shape[0] == count;
    if (!whole) return source.ring.write(Record::job, nullptr, SIZE_MAX >> 16);  // counts as lost
    const size_t bytes = static_cast<size_t>(count) * static_cast<size_t>(width + 2) * 4, words = 3 + (bytes + 7) / 8;
    if (words > source.words.size()) return source.ring.write(Record::job, nullptr, SIZE_MAX >> 16);  // counts as lost
    int64_t* const to = source.words.data();
    to[0] = frame;
    to[1] = count;
    to[2] = width;
    if (words > 3) to[words - 1] = 0;  // the padding
    char* at = reinterpret_cast<char*>(to + 3);
    for (const Tensor* part : {&boxes, &scores, &labels}) {
      const size_t size = static_cast<size_t>(count) * (part == &boxes ? static_cast<size_t>(width) : 1) * 4;
      std::memcpy(at, part->data, size);
      at += size;
    }
    source.ring.write(Record::job, to, words);
  }

  // Write what was noted since the last call; a failed write sets `error`.
  void append() {
    Record kind;
    std::string text;
    for (const auto& source : sources_)
      while (source->ring.read(kind, words_)) {
        const size_t count = static_cast<size_t>(words_[1]), width = static_cast<size_t>(words_[2]);
        std::vector<float> floats(count * (width + 1));
        std::vector<int32_t> labels(count);
        if (count) {
          std::memcpy(floats.data(), &words_[3], floats.size() * 4);
          std::memcpy(labels.data(), reinterpret_cast<const char*>(&words_[3]) + floats.size() * 4, count * 4);
        }
        text += "{\"stage\":";
        append_json(text, source->stage);
        add_number(text += ",\"frame\":", words_[0]);
        text += ",\"boxes\":[";
        for (size_t i = 0; i < count; i++) {
          text += i ? ",[" : "[";
          for (size_t k = 0; k < width; k++) {
            if (k) text += ",";
            add_float(text, floats[i * width + k]);
          }
          text += "]";
        }
        text += "],\"scores\":[";
        for (size_t i = 0; i < count; i++) {
          if (i) text += ",";
          add_float(text, floats[count * width + i]);
        }
        text += "],\"labels\":[";
        for (size_t i = 0; i < count; i++) add_number(i ? text += ',' : text, labels[i]);
        text += "]}\n";
      }
    size_t done = 0;
    while (error_.empty() && done < text.size()) {
      const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0)
        error_ = std::strerror(written < 0 ? errno : ENOSPC);
      else
        done += static_cast<size_t>(written);
    }
  }

  const std::string& error() const { return error_; }

  uint64_t lost() const {
    uint64_t lost = 0;
    for (const auto& source : sources_) lost += source->ring.lost();
    return lost;
  }

 private:
  struct Source {
    std::string stage;
    Ring ring{size_t{1} << 18};
    std::vector<int64_t> words;
  };

  std::string path_, error_;
  int file_ = -1;
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<int64_t> words_;
};

constexpr size_t ROWS = 32;       // jobs, slices or instants a line
constexpr size_t HELD = 1 << 14;  // records formatted before they are written, which bounds the length of a line

// The outcome of a run (executed.json): its length, the frame accounts, and what went wrong.

// `origin`: the start of the run on the monotonic clock; `processor`: the time that its threads used processors, warm-up left
// out.  Written next to its place and renamed, so that it is complete or absent.  Failure if that is not possible.
inline void write_summary(const std::string& path, const Control& control, Ns duration, Ns origin, Ns processor, const std::string& journal_error,
                   const std::vector<std::string>& notices = {}) {
  std::string text = "{\"format\":\"socsched-executed\",\"version\":1,\"duration_ns\":" + std::to_string(duration) +
                     ",\"origin_ns\":" + std::to_string(origin) + ",\"processor_ns\":" + std::to_string(processor) + ",\n\"accounts\":{";
  std::map<std::string, const Account*> accounts;
  for (int source = 0; source < control.sources().count(); source++)
    accounts[control.names().text(control.sources().provider(source))] = &control.ledger().accounts()[static_cast<size_t>(source)];
  const char* comma = "";
  for (const auto& [name, account] : accounts) {
    if (account->released == 0) continue;
    text += comma;
    append_json(text, name);
    text += ":{\"released\":" + std::to_string(account->released) + ",\"completed\":" + std::to_string(account->booked[COMPLETED]) +
            ",\"dropped\":" + std::to_string(account->booked[DROPPED]) + ",\"aborted\":" + std::to_string(account->booked[ABORTED]) + "}";
    comma = ",\n";
  }
  text += std::string("},\n\"interrupted\":") + (control.interrupted() ? "true" : "false") + ",\"failure\":";
  append_json(text, control.failure());
  text += ",\"failed_stage\":";
  append_json(text, control.failed_stage());
  text += ",\"failed_frame\":" + std::to_string(control.failed_frame()) + ",\"journal_error\":";
  append_json(text, journal_error);
  text += ",\"notices\":[";
  for (size_t i = 0; i < notices.size(); i++) {
    if (i) text += ",";
    append_json(text, notices[i]);
  }
  text += "]}\n";
  const std::string aside = path + ".new";
  std::FILE* const file = std::fopen(aside.c_str(), "wb");
  bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file) written &= std::fclose(file) == 0;
  if (written && std::rename(aside.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  std::remove(aside.c_str());
  throw Failure(MACHINE, path + ": cannot be written: " + std::strerror(reason), "check permissions and free space");
}

// Nanoseconds as text with four significant digits, such as 4.87 ms.
inline std::string format_duration(Ns time) {
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

// The words of an instant; `words` is its record.
inline std::string words_of(const Control& control, const std::vector<int64_t>& words) {
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

inline const char* word_of(Kind kind) {
  static const char* const words[] = {"miss", "drop", "abort", "input", "fault", "overload", "late"};
  return words[static_cast<size_t>(kind)];
}

inline const char* word_of(Status status) {
  static const char* const words[] = {"unfinished", "done", "dropped", "aborted"};
  return words[static_cast<size_t>(status)];
}

class Journal {
 public:
  // Creates the file, with its first line; `plan_digest` is that of plan.json.  Failure if it cannot be written.
  Journal(const std::string& path, Control& control, const std::string& plan_digest)
      : control_(control), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (file_ < 0) throw Failure(MACHINE, path + ": cannot be written: " + std::strerror(errno), "check permissions and free space");
    const Settings& settings = control.settings();
    write("{\"format\":\"socsched-journal\",\"kind\":\"measured\",\"seed\":" + std::to_string(settings.seed) + ",\"duration_ns\":" +
          std::to_string(settings.horizon) + ",\"plan\":\"" + plan_digest + "\"}\n");
  }

  ~Journal() { ::close(file_); }
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Write what has been recorded since the last call.  A failed write sets `error`, and the run goes on.
  void append() {
    Record kind;
    while (control_.ring().read(kind, words_)) {
      add(kind, words_);
      if (++held_ >= HELD) flush();
    }
    flush();
  }

  const std::string& error() const { return error_; }

 private:
  // Rows of one kind, as lines of a few each.
  struct Table {
    const std::string head;
    std::string text = {};
    size_t rows = 0;

    // Begin a row of a table and return where its text goes.
    std::string& row() {
      text += rows++ % ROWS ? "," : rows > 1 ? "]}\n" + head : head;
      return text;
    }
  };

  void add(Record kind, const std::vector<int64_t>& words) {
    const Names& names = control_.names();
    switch (kind) {
      case Record::job: {
        std::string& row = jobs_.row();
        add_number(row += '[', words[0]);
        append_json(row += ',', names.text(static_cast<int>(words[1])));
        for (size_t i = 2; i < 9; i++) add_number(row += ',', words[i]);
        ((row += ",\"") += word_of(static_cast<Status>(words[9]))) += "\",{";
        for (size_t i = 10; i < words.size(); i += 2) {
          if (i > 10) row += ',';
          append_json(row, names.text(static_cast<int>(words[i])));
          add_number(row += ':', words[i + 1]);
        }
        row += "}]";
        break;
      }
      case Record::slice: {
        const Plan& plan = control_.plan(static_cast<int>(words[0]));
        const Task& task = plan.tasks[static_cast<size_t>(words[1])];
        std::string& row = slices_.row();
        append_json(row += '[', plan.engines[static_cast<size_t>(task.engine)].id);
        row += ",[";
        for (size_t i = 0; i < task.lanes.size(); i++) add_number(i ? row += ',' : row, task.lanes[i]);
        add_number(row += "],", words[2]);
        append_json(row += ',', title_of(static_cast<int>(words[0]), task));
        add_number(row += ',', words[3]);
        add_number(row += ',', words[4]);
        row += ']';
        break;
      }
      case Record::instant: {
        std::string& row = instants_.row();
        add_number(row += '[', words[0]);
        ((row += ",\"") += word_of(static_cast<Kind>(words[1]))) += "\",";
        append_json(row, words[2] < 0 ? "run" : names.text(static_cast<int>(words[2])));
        add_number(row += ',', words[3]);
        append_json(row += ',', words_of(control_, words));
        row += ']';
        break;
      }
      case Record::release: {
        std::string& times = releases_[names.text(static_cast<int>(words[0]))];
        add_number(times.empty() ? times : times += ',', words[1]);
        break;
      }
      case Record::counter: {
        static const char* const prefixes[] = {"queue.", "overruns.", "release_late_ns."};
        std::string& steps = counters_[prefixes[words[0]] + names.text(static_cast<int>(words[1]))];
        double value;
        std::memcpy(&value, &words[3], sizeof value);
        add_number(steps += steps.empty() ? "[" : ",[", words[2]);
        add_number(steps += ',', static_cast<int64_t>(value));  // a count or nanoseconds
        steps += ".0]";
        break;
      }
    }
  }

  // Releases before the jobs they began: a file that ends between the two has no job without its release.
  void flush() {
    std::string text;
    const auto add = [&](const char* name, std::map<std::string, std::string>& lists) {
      if (lists.empty()) return;
      ((text += text.empty() ? "{\"" : ",\"") += name) += "\":{";
      const char* comma = "";
      for (const auto& [key, values] : lists) {
        append_json(text += comma, key);
        ((text += ":[") += values) += ']';
        comma = ",";
      }
      text += '}';
      lists.clear();
    };
    add("releases", releases_);
    add("counters", counters_);
    if (!text.empty()) text += "}\n";
    for (Table* const table : {&jobs_, &slices_, &instants_}) {
      if (table->rows) (text += table->text) += "]}\n";
      table->text.clear();
      table->rows = 0;
    }
    write(text);
    held_ = 0;
  }

  void write(const std::string& text) {
    if (!error_.empty()) return;
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        error_ = std::strerror(count < 0 ? errno : ENOSPC);
        return;
      }
      done += static_cast<size_t>(count);
    }
  }

  const std::string& title_of(int version, const Task& task) const {
    const StageSettings& stage = control_.settings().stage(version, task.name);
    return stage.title.empty() ? task.name : stage.title;
  }

  Control& control_;
  int file_;
  std::string error_;
  Table jobs_{"{\"jobs\":["}, slices_{"{\"slices\":["}, instants_{"{\"instants\":["};
  std::map<std::string, std::string> releases_, counters_;
  std::vector<int64_t> words_;
  size_t held_ = 0;
};

}  // namespace socsched
