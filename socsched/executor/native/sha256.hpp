// SHA-256 of files.
#pragma once

#include <string>

namespace socsched {

// The sha256 of a file in hexadecimal; Failure if it cannot be read.
std::string file_digest(const std::string& path);

}  // namespace socsched
