// socsched-executor: runs a plan, in real time or on a virtual clock.  See usage() for its arguments.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <sys/prctl.h>

#include "control.hpp"
#include "failure.hpp"
#include "journal.hpp"
#include "json.hpp"
#include "real_run.hpp"
#include "selftest.hpp"
#include "sha256.hpp"
#include "virtual_run.hpp"

namespace socsched {

namespace {

const char* const USAGE_TEXT =
    "usage: socsched-executor SETTINGS.json -o FOLDER [--virtual] [--horizon-ns N] [--pace rate|asap]\n"
    "                        [--realtime auto|fifo|off] [--end-with-parent]\n"
    "Runs the plan that the settings name and writes journal.jsonl, executed.json and, where stages detect objects,\n"
    "detections.jsonl into the folder.\n"
    "       socsched-executor SETTINGS.json --selftest REFERENCES.json [--repeat N] [--profile FILE]\n"
    "Runs every stage on stored inputs and compares its outputs with those stored; prints the median time of N runs, and\n"
    "writes costs for `socsched plan --profile`.\n"
    "       socsched-executor --check SUMS\n"
    "Compares files with the sha256 digests listed in a file next to them, as sha256sum writes it.\n"
    "--horizon-ns N releases frames for N ns instead of the time in the settings.\n"
    "--pace asap releases a frame when the one before has ended, however long that takes: no deadline is kept to.\n"
    "--realtime CLASS schedules its threads so instead of as the settings say; auto is fifo where a processor stays free.\n"
    "--virtual runs it on a virtual clock, where jobs take their planned time and decisions take none.\n"
    "Exit code 0: the run is complete, 2: a file or an argument is wrong, 3: this machine cannot do it or a stage failed.\n";

struct Arguments {
  std::string settings, folder, references, profile, realtime;
  size_t repeat = 1;
  bool is_virtual = false, asap = false;
  Ns horizon = -1;
};

Arguments read_arguments(int count, char** values) {
  Arguments found;
  for (int i = 1; i < count; i++) {
    const std::string value = values[i];
    if (value == "-o" && i + 1 < count)
      found.folder = values[++i];
    else if (value == "--end-with-parent")
      prctl(PR_SET_PDEATHSIG, SIGTERM);
    else if (value == "--horizon-ns" && i + 1 < count)
      found.horizon = JsonFile("--horizon-ns", values[++i]).root().integer(0, MOST_NS);
    else if (value == "--pace" && i + 1 < count && (values[i + 1] == std::string("asap") || values[i + 1] == std::string("rate")))
      found.asap = values[++i] == std::string("asap");
    else if (value == "--realtime" && i + 1 < count && (values[i + 1] == std::string("auto") || values[i + 1] == std::string("fifo") || values[i + 1] == std::string("off")))
      found.realtime = values[++i];
    else if (value == "--selftest" && i + 1 < count)
      found.references = values[++i];
    else if (value == "--repeat" && i + 1 < count)
      found.repeat = static_cast<size_t>(JsonFile("--repeat", values[++i]).root().integer(1, 100'000));
    else if (value == "--profile" && i + 1 < count)
      found.profile = values[++i];
    else if (value == "--virtual")
      found.is_virtual = true;
    else if (found.settings.empty() && value[0] != '-')
      found.settings = value;
    else
      throw Failure(USAGE, "unexpected argument " + value, USAGE_TEXT);
  }
  if (found.settings.empty() || (found.folder.empty() && found.references.empty())) throw Failure(USAGE, "the settings or -o FOLDER are missing", USAGE_TEXT);
  return found;
}

// Compare files with their listed digests; Failure for the first that differs.
void check_digests(const std::string& sums) {
  const size_t slash = sums.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : sums.substr(0, slash + 1);
  std::FILE* const file = std::fopen(sums.c_str(), "rb");
  if (!file) throw Failure(USAGE, sums + ": cannot be read: " + std::strerror(errno), "build the bundle again");
  char line[5000];
  for (int number = 1; std::fgets(line, sizeof line, file); number++) {
    std::string text = line;
    if (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.size() < 67 || text.substr(64, 2) != "  " || text.find("..") != std::string::npos || text[66] == '/') {
      std::fclose(file);
      throw Failure(USAGE, sums + ":" + std::to_string(number) + ":1: expected a sha256, two blanks and a file of the folder");
    }
    const std::string path = folder + text.substr(66);
    if (file_digest(path) == text.substr(0, 64)) continue;
    std::fclose(file);
    throw Failure(USAGE, path + ": differs from what was built", "copy the whole bundle again");
  }
  std::fclose(file);
}

int run(int count, char** values) {
  if (count == 2 && std::strcmp(values[1], "--help") == 0) {
    std::fputs(USAGE_TEXT, stdout);
    return OK;
  }
  if (count == 3 && std::strcmp(values[1], "--check") == 0) {
    check_digests(values[2]);
    return OK;
  }
  const Arguments arguments = read_arguments(count, values);
  Names names;
  Settings settings = read_settings(arguments.settings, names);
  if (arguments.horizon >= 0) settings.horizon = arguments.horizon;
  if (!arguments.realtime.empty()) settings.realtime = arguments.realtime;
  if (arguments.asap) settings.in_flight = std::max(settings.in_flight, 1), settings.hang = MOST_NS;
  Control control(settings, names);
  if (!arguments.references.empty()) return selftest(control, arguments.references, arguments.repeat, arguments.profile) ? OK : MACHINE;
  const std::string record = arguments.folder + "/journal.jsonl", boxes = arguments.folder + "/detections.jsonl";
  Journal journal(record, control, file_digest(settings.plan));
  const auto complete = [&](const std::string& file, const std::string& error) {
    if (!error.empty()) throw Failure(MACHINE, file + ": cannot be written: " + error, "free space on its disk: what is missing cannot be recovered");
  };
  const std::string summary = arguments.folder + "/executed.json";
  std::remove(summary.c_str());  // that of an earlier run
  if (arguments.is_virtual) {
    write_summary(summary, control, run_virtually(control, journal), 0, 0, journal.error(), control.notices());
    complete(record, journal.error());
  } else {
    Detections detections(boxes);
    std::unique_ptr<RealRun> real;
    try {
      real = std::make_unique<RealRun>(control, journal, detections);
    } catch (const std::exception&) {  // nothing has run
      std::remove(record.c_str());
      std::remove(boxes.c_str());
      throw;
    }
    const Ns duration = real->run();
    std::vector<std::string> notices = real->notices();
    if (arguments.asap) notices.push_back("frames were released one after the other's end (--pace asap): no deadline was kept to");
    write_summary(summary, control, duration, real->origin(), real->processor(), journal.error(), notices);
    if (real->hung()) {  // a thread is still in its stage
      if (!journal.error().empty()) std::fprintf(stderr, "error: %s: cannot be written: %s\n", record.c_str(), journal.error().c_str());
      std::_Exit(control.failure().empty() && journal.error().empty() ? OK : MACHINE);
    }
    complete(record, journal.error());
    complete(boxes, detections.error());
  }
  return control.failure().empty() ? OK : MACHINE;
}

// Print text without the control characters that a hostile file may have put into it.
void print_error(const std::string& text) {
  std::string shown;
  for (const char c : text) shown += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? '?' : c;
  std::fprintf(stderr, "%s\n", shown.c_str());
}

}  // namespace

}  // namespace socsched

int main(int count, char** values) {
  try {
    return socsched::run(count, values);
  } catch (const socsched::Failure& failure) {
    socsched::print_error(std::string("error: ") + failure.what());
    if (!failure.hint.empty()) socsched::print_error("hint: " + failure.hint);
    return failure.code;
  } catch (const std::bad_alloc&) {
    socsched::print_error("error: not enough memory");
    return socsched::MACHINE;
  } catch (const std::exception& error) {
    socsched::print_error(std::string("error: ") + error.what());
    return socsched::MACHINE;
  }
}
