// The words of a trace: instants as the Python executor words them, and durations for people.
#pragma once

#include <string>
#include <vector>

#include "control.hpp"

namespace socsched {

// Nanoseconds as text with four significant digits, such as 4.87 ms.
std::string format_duration(Ns time);

// The words of an instant; `words` is its record.
std::string words_of(const Control& control, const std::vector<int64_t>& words);

const char* word_of(Kind kind);
const char* word_of(Status status);

}  // namespace socsched
