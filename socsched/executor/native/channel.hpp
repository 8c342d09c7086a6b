// A socket to the process that started this one: messages of a JSON header and the tensors that it lists.
//
// A message is the length of the header (four bytes), the header, and the tensors one after another, as they lie in memory.
#pragma once

#include <string>
#include <vector>

#include "json.hpp"
#include "tensor.hpp"

namespace socsched {

class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}

  // Send a header of `fields` ("a":1,"b":2) and `tensors`; Failure if the other end is gone.
  void send(std::string fields, const std::vector<const Tensor*>& tensors = {});

  // Receive the next header; the bytes of its tensors follow, to be read in turn.  Failure at the end of the messages.
  JsonFile receive();
  static std::vector<TensorType> tensors_of(const JsonFile& header);
  void read(void* to, size_t bytes);

  void close();  // for both ends; a thread that waits for a message gets a Failure

 private:
  void write(const void* from, size_t bytes);

  int socket_;
};

}  // namespace socsched
