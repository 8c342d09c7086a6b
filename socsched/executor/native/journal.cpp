#include "journal.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "failure.hpp"
#include "json.hpp"
#include "texts.hpp"

namespace socsched {

namespace {

constexpr size_t ROWS = 32;       // jobs, slices or instants a line
constexpr size_t HELD = 1 << 14;  // records formatted before they are written, which bounds the length of a line

}  // namespace

Journal::Journal(const std::string& path, Control& control, const std::string& plan_digest)
    : control_(control), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (file_ < 0) throw Failure(MACHINE, path + ": cannot be written: " + std::strerror(errno), "check permissions and free space");
  const Settings& settings = control.settings();
  write("{\"format\":\"socsched-journal\",\"kind\":\"measured\",\"seed\":" + std::to_string(settings.seed) + ",\"duration_ns\":" +
        std::to_string(settings.horizon) + ",\"plan\":\"" + plan_digest + "\"}\n");
}

Journal::~Journal() { ::close(file_); }

void Journal::append() {
  Record kind;
  while (control_.ring().read(kind, words_)) {
    add(kind, words_);
    if (++held_ >= HELD) flush();
  }
  flush();
}

// Begin a row of a table and return where its text goes.
std::string& Journal::Table::row() {
  text += rows++ % ROWS ? "," : rows > 1 ? "]}\n" + head : head;
  return text;
}

void Journal::add(Record kind, const std::vector<int64_t>& words) {
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
void Journal::flush() {
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

void Journal::write(const std::string& text) {
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

const std::string& Journal::title_of(int version, const Task& task) const {
  const StageSettings& stage = control_.settings().stage(version, task.name);
  return stage.title.empty() ? task.name : stage.title;
}

}  // namespace socsched
