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

// The outcome of a run (executed.json): its length, the frame accounts, and what went wrong.

// `origin`: the start of the run on the monotonic clock; `processor`: the time that its threads used processors, warm-up left
// out.  Written next to its place and renamed, so that it is complete or absent.  Failure if that is not possible.
void write_summary(const std::string& path, const Control& control, Ns duration, Ns origin, Ns processor, const std::string& journal_error,
                   const std::vector<std::string>& notices = {});

// The words of a trace: instants as the Python executor words them, and durations for people.

// Nanoseconds as text with four significant digits, such as 4.87 ms.
std::string format_duration(Ns time);

// The words of an instant; `words` is its record.
std::string words_of(const Control& control, const std::vector<int64_t>& words);

const char* word_of(Kind kind);
const char* word_of(Status status);

}  // namespace socsched
