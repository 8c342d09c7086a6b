// An error that ends the program: a message, a remedy, and the exit code of the command line.
#pragma once

#include <stdexcept>
#include <string>

namespace socsched {

enum Exit { OK = 0, VIOLATED = 1, USAGE = 2, MACHINE = 3, INTERRUPTED = 130 };

class Failure : public std::runtime_error {
 public:
  Failure(Exit code, const std::string& message, std::string hint = "")
      : std::runtime_error(message), code(code), hint(std::move(hint)) {}

  Exit code;
  std::string hint;
};

}  // namespace socsched
