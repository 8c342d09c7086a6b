// What stand-ins share: notes of calls in $STANDIN_LOG, memory of a device, and what stands for an accelerator's work where
// $STANDIN_SOCKET names a program that computes (tools/verify/board_root.py): a stage's name, then its inputs' bytes, are
// answered by its outputs' bytes.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

namespace standin {

inline void note(const char* format, ...) {
  static std::FILE* const log = std::getenv("STANDIN_LOG") ? std::fopen(std::getenv("STANDIN_LOG"), "a") : stderr;
  va_list values;
  va_start(values, format);
  std::vfprintf(log, format, values);
  va_end(values);
  std::fputc('\n', log);
  std::fflush(log);
}

// Memory of the device; where kernels run outside, at an address that the program there maps too.
inline void* room(size_t bytes) {
  static const char* const outside = std::getenv("STANDIN_SOCKET");
  if (!outside) return std::aligned_alloc(256, bytes);
  static constexpr uint64_t FIRST = 0x600000000000, MOST = uint64_t{4} << 30;
  static uint64_t next = 0;
  static std::mutex guard;
  const std::lock_guard<std::mutex> lock(guard);
  if (!next) {
    const int file = open((std::string(outside) + ".memory").c_str(), O_RDWR);
    void* const place = mmap(reinterpret_cast<void*>(FIRST), MOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
    if (place != reinterpret_cast<void*>(FIRST)) return nullptr;
    next = FIRST;
  }
  next += bytes;
  return next <= FIRST + MOST ? reinterpret_cast<void*>(next - bytes) : nullptr;
}

struct Bytes {
  void* memory;
  size_t count;
};

inline bool whole(int socket, Bytes bytes, bool sends) {
  for (char* place = static_cast<char*>(bytes.memory); bytes.count;) {
    const ssize_t done = sends ? write(socket, place, bytes.count) : read(socket, place, bytes.count);
    if (done <= 0) return false;
    place += done, bytes.count -= static_cast<size_t>(done);
  }
  return true;
}

inline bool compute(std::string stage, const std::vector<Bytes>& inputs, const std::vector<Bytes>& outputs) {
  sockaddr_un address{AF_UNIX, {}};
  std::strncpy(address.sun_path, std::getenv("STANDIN_SOCKET"), sizeof address.sun_path - 1);
  const int link = socket(AF_UNIX, SOCK_STREAM, 0);
  stage += '\n';
  bool done = connect(link, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && whole(link, {stage.data(), stage.size()}, true);
  for (const Bytes& input : inputs) done = done && whole(link, input, true);
  for (const Bytes& output : outputs) done = done && whole(link, output, false);
  close(link);
  return done;
}

// The text of a model: the artefact itself, or, of one that a vendor's compiler made, the file named by its size.
inline std::istringstream model_text(const void* artefact, size_t size) {
  const char* const folder = std::getenv("STANDIN_MODELS");
  std::ifstream file(std::string(folder ? folder : "") + "/" + std::to_string(size) + ".txt");
  std::ostringstream text;
  if (folder && file) text << file.rdbuf();
  else text.write(static_cast<const char*>(artefact), static_cast<std::streamsize>(size));
  return std::istringstream(text.str());
}

}  // namespace standin
