// The self-test of a bundle: every stage on stored inputs, its outputs against those stored.
#pragma once

#include <string>

#include "control.hpp"

namespace socsched {

// Run all stages of the plan that compute, `repeat` times each, and print a line for each; return whether all outputs are
// as stored in the references (socsched/executor/references.py).  Times go to the file `profile`, if it is named.  Failure
// for references that cannot be used.
bool selftest(const Control& control, const std::string& references, size_t repeat, const std::string& profile);

}  // namespace socsched
