// A launch list (socsched/executor/programs.py): kernels with fixed sizes over three pieces of memory.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "failure.hpp"
#include "json.hpp"
#include "settings.hpp"

namespace socsched {

constexpr int64_t MOST_BYTES = int64_t{1} << 38, MOST_FILE = int64_t{1} << 31;

inline std::array<unsigned, 3> read_sizes(const JsonField& from) {
  const std::vector<JsonField> items = from.items(3);
  if (items.size() != 3) from.fail("expected 3 numbers");
  std::array<unsigned, 3> sizes{};
  for (size_t i = 0; i < 3; i++) sizes[i] = static_cast<unsigned>(items[i].integer(1, INT32_MAX));
  return sizes;
}

constexpr size_t MOST_LAUNCHES = 100'000, MOST_ARGUMENTS = 128;  // of a program, of a kernel

// A place in the program's own memory, its constants, or the results of one frame.
struct Place {
  enum Space { memory, constants, results } space = memory;
  uint64_t offset = 0;
};

inline Place read_place(const JsonField& from, const std::array<uint64_t, 3>& room) {
  static const std::vector<std::string> names = {"memory", "constants", "results"};
  Place place;
  const std::string space = from["in"].one_of(names);
  while (names[place.space] != space) place.space = static_cast<Place::Space>(place.space + 1);
  place.offset = static_cast<uint64_t>(from["offset"].integer(0, static_cast<int64_t>(room[place.space])));
  return place;
}

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

  // Failure for a file that is no launch list
  explicit LaunchList(const std::string& file) {
    const JsonFile json(file);
    const JsonField root = json.root();
    root["format"].one_of({"socsched-launches"});
    root["version"].integer(1, 1);
    memory = static_cast<uint64_t>(root["memory"].integer(0, MOST_BYTES));
    results = static_cast<uint64_t>(root["results"].integer(0, MOST_BYTES));
    constants = static_cast<uint64_t>(root["constants"].integer(0, MOST_FILE));
    weights = path_next_to(file, root["weights"].text(LONGEST));
    const std::array<uint64_t, 3> room{memory, constants, results};
    for (const std::string& name : root["code"].texts(MOST_PORTS, LONGEST)) code.push_back(path_next_to(file, name));
    for (const JsonField& entry : root["inputs"].items(MOST_PORTS)) {
      Input input;
      input.place = read_place(entry, room);
      input.bytes = static_cast<uint64_t>(entry["bytes"].integer(0, static_cast<int64_t>(room[input.place.space] - input.place.offset)));
      input.row_bytes = static_cast<uint64_t>(entry["row_bytes"].integer(0, static_cast<int64_t>(input.bytes)));
      input.fill = static_cast<uint8_t>(entry["fill"].integer(0, 255));
      if ((input.counts = entry.has("count"))) input.count = read_place(entry["count"], room);
      input.filled = !entry.has("filled") || entry["filled"].boolean();
      inputs.push_back(input);
    }
    for (const JsonField& entry : root["outputs"].items(MOST_PORTS)) {
      const int64_t offset = entry["offset"].integer(0, static_cast<int64_t>(results));
      const int64_t size = entry["bytes"].integer(0, static_cast<int64_t>(results) - offset);
      outputs.push_back({static_cast<uint64_t>(offset), static_cast<uint64_t>(size)});
    }
    for (const JsonField& entry : root["launches"].items(MOST_LAUNCHES)) {
      Launch& launch = launches.emplace_back();
      launch.kernel = entry["kernel"].text(LONGEST);
      launch.code = static_cast<size_t>(entry["code"].integer(0, static_cast<int64_t>(code.size()) - 1));
      launch.grid = read_sizes(entry["grid"]);
      launch.block = read_sizes(entry["block"]);
      launch.shared = static_cast<unsigned>(entry["shared"].integer(0, 1 << 20));
      for (const JsonField& argument : entry["arguments"].items(MOST_ARGUMENTS)) launch.arguments.push_back(read_argument(argument, room));
    }
  }

  uint64_t memory = 0, constants = 0, results = 0;  // bytes
  std::vector<std::string> code;                    // files
  std::string weights;                              // the file of the constants
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Launch> launches;

 private:
  static Argument read_argument(const JsonField& from, const std::array<uint64_t, 3>& room) {
    Argument argument;
    if (from.has("value")) {
      argument.bits = static_cast<uint64_t>(from["value"].integer(INT64_MIN, INT64_MAX));
      if (from.has("bytes")) argument.bytes = static_cast<size_t>(from["bytes"].integer(1, sizeof argument.bits));
      return argument;
    }
    argument.kind = Argument::place;
    argument.where = read_place(from, room);
    return argument;
  }
};

// The bytes of a file of code or constants, and a zero, since code may be text; Failure if it cannot be read.
inline std::vector<char> read_code(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  if (!file || std::fseek(file.get(), 0, SEEK_END) != 0) throw Failure(USAGE, path + ": cannot be read", "compile the stage again");
  const long size = std::ftell(file.get());
  if (size < 0 || size > MOST_FILE) throw Failure(USAGE, path + ": expected at most 2 GiB", "compile the stage again");
  std::vector<char> bytes(static_cast<size_t>(size) + 1);
  std::rewind(file.get());
  if (std::fread(bytes.data(), 1, static_cast<size_t>(size), file.get()) != static_cast<size_t>(size))
    throw Failure(USAGE, path + ": cannot be read", "compile the stage again");
  return bytes;
}

}  // namespace socsched
