// The outcome of a run (executed.json): its length, the frame accounts, and what went wrong.
#pragma once

#include <string>
#include <vector>

#include "control.hpp"

namespace socsched {

// `origin`: the start of the run on the monotonic clock; `processor`: the time that its threads used processors, warm-up left
// out.  Written next to its place and renamed, so that it is complete or absent.  Failure if that is not possible.
void write_summary(const std::string& path, const Control& control, Ns duration, Ns origin, Ns processor, const std::string& journal_error,
                   const std::vector<std::string>& notices = {});

}  // namespace socsched
