// A launch list (socsched/executor/programs.py): kernels with fixed sizes over three pieces of memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "json.hpp"

namespace socsched {

constexpr size_t MOST_LAUNCHES = 100'000, MOST_ARGUMENTS = 128;  // of a program, of a kernel

// A place in the program's own memory, its constants, or the results of one frame.
struct Place {
  enum Space { memory, constants, results } space = memory;
  uint64_t offset = 0;
};

struct LaunchList {
  struct Input {
    Place place;
    uint64_t bytes = 0, row_bytes = 0;  // row_bytes: of a row, if their number varies; the rest is filled
    uint8_t fill = 0;
    bool counts = false, filled = true;
    Place count;                        // takes the number of rows, if `counts`; kernels that read it need nothing filled
  };

  struct Output {
    uint64_t offset = 0, bytes = 0;     // among the results
  };

  struct Argument {
    enum Kind { place, value } kind = value;
    Place where;
    uint64_t bits = 0;                  // of a value, in the machine's byte order
    size_t bytes = sizeof bits;         // of a value, where the driver asks for it
  };

  struct Launch {
    std::string kernel;
    size_t code = 0;                    // number of its file
    std::array<unsigned, 3> grid{}, block{};
    unsigned shared = 0;
    std::vector<Argument> arguments;
  };

  explicit LaunchList(const std::string& file);  // Failure for a file that is no launch list

  uint64_t memory = 0, constants = 0, results = 0;  // bytes
  std::vector<std::string> code;                    // files
  std::string weights;                              // the file of the constants
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Launch> launches;
};

// The bytes of a file of code or constants, and a zero, since code may be text; Failure if it cannot be read.
std::vector<char> read_code(const std::string& path);

}  // namespace socsched
