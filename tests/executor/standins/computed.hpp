// What stands for an accelerator's work where $STANDIN_SOCKET names a program that computes (tools/verify/board_root.py): a stage's
// name, then its inputs' bytes, are answered by its outputs' bytes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

namespace standin {

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
