// A socket to the process that started this one: messages of a JSON header and the tensors that it lists.
//
// A message is the length of the header (four bytes), the header, and the tensors one after another, as they lie in memory.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "failure.hpp"
#include "json.hpp"
#include "settings.hpp"
#include "tensor.hpp"

namespace socsched {

constexpr uint32_t MOST_HEADER = 1 << 20;

inline std::string shape_of(const TensorType& type) {
  std::string text;
  for (int axis = 0; axis < type.rank; axis++) text += (axis ? "," : "") + std::to_string(type.shape[static_cast<size_t>(axis)]);
  return text;
}

[[noreturn]] inline void gone() { throw Failure(MACHINE, "the process that runs its stages has ended", "run the plan again"); }

class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}

  // Send a header of `fields` ("a":1,"b":2) and `tensors`; Failure if the other end is gone.
  void send(std::string fields, const std::vector<const Tensor*>& tensors = {}) {
    std::string header = "{" + fields + (fields.empty() ? "" : ",") + "\"tensors\":[";
    for (size_t i = 0; i < tensors.size(); i++) {
      const TensorType& type = tensors[i]->type;
      header += std::string(i ? "," : "") + "{\"dtype\":\"" + dtype_names()[static_cast<size_t>(type.dtype)] + "\",\"layout\":\"" +
                (type.rank == 4 ? layout_name(type.layout) : "") + "\",\"shape\":[" + shape_of(type) + "]}";
    }
    header += "]}";
    const uint32_t length = static_cast<uint32_t>(header.size());
    header.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
    write(header.data(), header.size());
    for (const Tensor* const tensor : tensors) write(tensor->data, tensor->type.bytes());
  }

  // Receive the next header; the bytes of its tensors follow, to be read in turn.  Failure at the end of the messages.
  JsonFile receive() {
    uint32_t length;
    read(&length, sizeof length);
    if (length > MOST_HEADER) throw Failure(MACHINE, "a message of " + std::to_string(length) + " bytes is too long", "run the plan again");
    std::string header(length, ' ');
    read(header.data(), length);
    return JsonFile("a message", header);
  }

  static std::vector<TensorType> tensors_of(const JsonFile& header) {
    std::vector<TensorType> types;
    for (const JsonField& entry : header.root()["tensors"].items(MOST_PORTS)) types.push_back(read_type(entry, 0));
    return types;
  }

  void read(void* to, size_t bytes) {
    char* at = static_cast<char*>(to);
    while (bytes) {
      const ssize_t done = ::recv(socket_, at, bytes, 0);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) gone();
      at += done;
      bytes -= static_cast<size_t>(done);
    }
  }

  // For both ends; a thread that waits for a message gets a Failure.
  void close() { ::shutdown(socket_, SHUT_RDWR); }

 private:
  void write(const void* from, size_t bytes) {
    const char* at = static_cast<const char*>(from);
    while (bytes) {
      const ssize_t done = ::send(socket_, at, bytes, MSG_NOSIGNAL);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) gone();
      at += done;
      bytes -= static_cast<size_t>(done);
    }
  }

  int socket_;
};

}  // namespace socsched
