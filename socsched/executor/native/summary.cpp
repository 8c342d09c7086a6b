#include "summary.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "failure.hpp"
#include "json.hpp"

namespace socsched {

void write_summary(const std::string& path, const Control& control, Ns duration, Ns origin, Ns processor, const std::string& journal_error,
                   const std::vector<std::string>& notices) {
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

}  // namespace socsched
