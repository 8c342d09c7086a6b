// The growing trace of a run in a file that survives the end of the process: journal.jsonl of socsched/runtime/journal.py.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "control.hpp"

namespace socsched {

class Journal {
 public:
  // Creates the file, with its first line; `plan_digest` is that of plan.json.  Failure if it cannot be written.
  Journal(const std::string& path, Control& control, const std::string& plan_digest);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Write what has been recorded since the last call.  A failed write sets `error`, and the run goes on.
  void append();
  const std::string& error() const { return error_; }

 private:
  // Rows of one kind, as lines of a few each.
  struct Table {
    const std::string head;
    std::string text = {};
    size_t rows = 0;

    std::string& row();
  };

  void add(Record kind, const std::vector<int64_t>& words);
  void flush();
  void write(const std::string& text);
  const std::string& title_of(int version, const Task& task) const;

  Control& control_;
  int file_;
  std::string error_;
  Table jobs_{"{\"jobs\":["}, slices_{"{\"slices\":["}, instants_{"{\"instants\":["};
  std::map<std::string, std::string> releases_, counters_;
  std::vector<int64_t> words_;
  size_t held_ = 0;
};

}  // namespace socsched
