// Boxes, scores and labels that stages found, in a file of JSON lines: detections.jsonl.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "job.hpp"
#include "records.hpp"

namespace socsched {

class Detections {
 public:
  explicit Detections(std::string path) : path_(std::move(path)) {}
  ~Detections();
  Detections(const Detections&) = delete;
  Detections& operator=(const Detections&) = delete;

  // Before the run: a stage whose first three outputs are boxes, scores and labels; returns its number.
  size_t add(const std::string& stage);

  // Note the outputs of a job; called by one thread at a time for each stage, and neither allocates nor waits.
  void note(size_t stage, int64_t frame, const Data& outputs);

  // Write what was noted since the last call; a failed write sets `error`.
  void append();
  const std::string& error() const { return error_; }
  uint64_t lost() const;

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

}  // namespace socsched
