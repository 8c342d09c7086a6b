#include "cuda_program.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "failure.hpp"
#include "settings_data.hpp"

namespace socsched::cuda {

namespace {

constexpr int64_t MOST_BYTES = int64_t{1} << 38, MOST_FILE = int64_t{1} << 31;
constexpr size_t MOST_LAUNCHES = 100'000, MOST_ARGUMENTS = 128, MOST_PORTS = 64, LONGEST = 4000;

std::vector<char> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  if (!file || std::fseek(file.get(), 0, SEEK_END) != 0) throw Failure(USAGE, path + ": cannot be read", "compile the stage again");
  const long size = std::ftell(file.get());
  if (size < 0 || size > MOST_FILE) throw Failure(USAGE, path + ": expected at most 2 GiB", "compile the stage again");
  std::vector<char> bytes(static_cast<size_t>(size) + 1);  // a zero at the end: code may be text
  std::rewind(file.get());
  if (std::fread(bytes.data(), 1, static_cast<size_t>(size), file.get()) != static_cast<size_t>(size))
    throw Failure(USAGE, path + ": cannot be read", "compile the stage again");
  return bytes;
}

template <size_t N>
std::array<unsigned, N> read_sizes(const JsonField& from) {
  const std::vector<JsonField> items = from.items(N);
  if (items.size() != N) from.fail("expected " + std::to_string(N) + " numbers");
  std::array<unsigned, N> sizes{};
  for (size_t i = 0; i < N; i++) sizes[i] = static_cast<unsigned>(items[i].integer(1, INT32_MAX));
  return sizes;
}

// The version of CUDA that made a program's code, 13000 for 13.0; 0 if its file does not tell.
int made_by(const std::string& file) {
  const JsonFile json(file);
  return json.root().has("toolkit") ? static_cast<int>(json.root()["toolkit"].integer(0, 1'000'000)) : 0;
}

}  // namespace

Program Program::load(const std::vector<std::string>& files, const Device& device) {
  std::string tried;
  std::vector<std::string> ordered = files;
  const auto is_newer = [&](const std::string& file) { return made_by(file) / 1000 > device.version() / 1000; };
  std::stable_partition(ordered.begin(), ordered.end(), [&](const std::string& file) { return !is_newer(file); });
  for (const std::string& file : ordered) {
    const JsonFile json(file);
    const std::string& architecture = json.root()["arch"].text(LONGEST);
    std::string why = "for " + architecture;
    if (device.runs(architecture)) {
      try {
        return Program(file, device);
      } catch (const Failure& failure) {
        if (failure.code != MACHINE) throw;
        why = failure.what();  // of another toolkit's major version, perhaps
      }
    }
    tried += (tried.empty() ? "" : "; ") + file + " (" + why + ")";
  }
  throw Failure(MACHINE, "no code for this GPU, sm_" + std::to_string(device.capability()) + " under CUDA " +
                             std::to_string(device.version() / 1000) + "." + std::to_string(device.version() % 1000 / 10) + ": " + tried,
                "compile the stage for this GPU");
}

Program::Program(const std::string& file, const Device& device) {
  const Driver& driver = device.driver();
  std::vector<std::string> code;
  std::string constants;
  const JsonFile json(file);
  read(json.root(), file, code, constants, constants_bytes_);
  std::vector<Module*> modules;
  for (const std::string& path : code) {
    Module* module = nullptr;
    device.check(driver.cuModuleLoadData(&module, read_file(path).data()), ("loading " + path).c_str());
    modules.push_back(module);
  }
  for (Launch& launch : launches_) {
    device.check(driver.cuModuleGetFunction(&launch.function, modules[launch.code], launch.kernel.c_str()), ("finding " + launch.kernel).c_str());
    if (launch.shared > SHARED_MEMORY_LIMIT)
      device.check(driver.cuFuncSetAttribute(launch.function, DYNAMIC_SHARED, static_cast<int>(launch.shared)), "reserving shared memory");
  }
  const std::vector<char> weights = read_file(constants);
  if (weights.size() - 1 < constants_bytes_) throw Failure(USAGE, constants + ": is shorter than its launch list says", "compile the stage again");
  if (memory_bytes_) device.check(driver.cuMemAlloc_v2(&memory_, memory_bytes_), "allocating memory");
  if (constants_bytes_) {
    device.check(driver.cuMemAlloc_v2(&constants_, constants_bytes_), "allocating memory");
    device.check(driver.cuMemcpyHtoD_v2(constants_, weights.data(), constants_bytes_), "copying the weights");
  }
}

void Program::read(const JsonField& root, const std::string& file, std::vector<std::string>& code, std::string& constants, uint64_t& bytes) {
  root["format"].one_of({"socsched-launches"});
  root["version"].integer(1, 1);
  memory_bytes_ = static_cast<uint64_t>(root["memory"].integer(0, MOST_BYTES));
  results_bytes_ = static_cast<uint64_t>(root["results"].integer(0, MOST_BYTES));
  bytes = static_cast<uint64_t>(root["constants"].integer(0, MOST_FILE));
  constants = path_next_to(file, root["weights"].text(LONGEST));
  const std::array<uint64_t, 3> room{memory_bytes_, bytes, results_bytes_};
  for (const std::string& name : root["code"].texts(MOST_PORTS, LONGEST)) code.push_back(path_next_to(file, name));
  for (const JsonField& entry : root["inputs"].items(MOST_PORTS)) {
    Input input;
    input.place = read_place(entry, room);
    input.bytes = static_cast<uint64_t>(entry["bytes"].integer(0, static_cast<int64_t>(room[input.place.space] - input.place.offset)));
    input.row_bytes = static_cast<uint64_t>(entry["row_bytes"].integer(0, static_cast<int64_t>(input.bytes)));
    input.fill = static_cast<uint8_t>(entry["fill"].integer(0, 255));
    if ((input.counts = entry.has("count"))) input.count = read_place(entry["count"], room);
    input.filled = !entry.has("filled") || entry["filled"].boolean();
    inputs_.push_back(input);
  }
  for (const JsonField& entry : root["outputs"].items(MOST_PORTS)) {
    const int64_t offset = entry["offset"].integer(0, static_cast<int64_t>(results_bytes_));
    const int64_t size = entry["bytes"].integer(0, static_cast<int64_t>(results_bytes_) - offset);
    outputs_.push_back({static_cast<uint64_t>(offset), static_cast<uint64_t>(size)});
  }
  for (const JsonField& entry : root["launches"].items(MOST_LAUNCHES)) {
    Launch& launch = launches_.emplace_back();
    launch.kernel = entry["kernel"].text(LONGEST);
    launch.code = static_cast<size_t>(entry["code"].integer(0, static_cast<int64_t>(code.size()) - 1));
    launch.grid = read_sizes<3>(entry["grid"]);
    launch.block = read_sizes<3>(entry["block"]);
    launch.shared = static_cast<unsigned>(entry["shared"].integer(0, 1 << 20));
    for (const JsonField& argument : entry["arguments"].items(MOST_ARGUMENTS)) launch.arguments.push_back(read_argument(argument, room));
  }
}

Place Program::read_place(const JsonField& from, const std::array<uint64_t, 3>& room) {
  static const std::vector<std::string> names = {"memory", "constants", "results"};
  Place place;
  const std::string space = from["in"].one_of(names);
  while (names[place.space] != space) place.space = static_cast<Place::Space>(place.space + 1);
  place.offset = static_cast<uint64_t>(from["offset"].integer(0, static_cast<int64_t>(room[place.space])));
  return place;
}

Program::Argument Program::read_argument(const JsonField& from, const std::array<uint64_t, 3>& room) {
  Argument argument;
  if (from.has("value")) {
    argument.bits = static_cast<uint64_t>(from["value"].integer(INT64_MIN, INT64_MAX));
    return argument;
  }
  argument.kind = Argument::place;
  argument.where = read_place(from, room);
  return argument;
}

Address Program::address(const Place& place, Address results) const {
  return (place.space == Place::memory ? memory_ : place.space == Place::constants ? constants_ : results) + place.offset;
}

void Program::queue(const Device& device, Stream* stream, Address results, size_t first, size_t last) const {
  for (size_t i = first; i < last; i++) {
    const Launch& launch = launches_[i];
    const size_t count = launch.arguments.size();
    std::vector<uint64_t> words(count);
    std::vector<void*> pointers(count);
    for (size_t k = 0; k < count; k++) {
      const Argument& argument = launch.arguments[k];
      words[k] = argument.kind == Argument::value ? argument.bits : address(argument.where, results);
      pointers[k] = &words[k];
    }
    device.check(device.driver().cuLaunchKernel(launch.function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1],
                                                launch.block[2], launch.shared, stream, pointers.data(), nullptr),
                 launch.kernel.c_str());
  }
}

}  // namespace socsched::cuda
