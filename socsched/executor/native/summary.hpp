// The outcome of a run (executed.json): its length, the frame accounts, and what went wrong.
#pragma once

#include <string>
#include <vector>

#include "control.hpp"

namespace socsched {

// Written next to its place and renamed, so that it is complete or absent.  Failure if that is not possible.
void write_summary(const std::string& path, const Control& control, Ns duration, const std::string& journal_error,
                   const std::vector<std::string>& notices = {});

}  // namespace socsched
