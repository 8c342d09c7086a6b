// Boxes, scores and labels that stages found, in a file of JSON lines: detections.jsonl.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "failure.hpp"
#include "job.hpp"
#include "json.hpp"

namespace socsched {

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

}  // namespace socsched
