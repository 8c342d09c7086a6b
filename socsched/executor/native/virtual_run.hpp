// A run on a virtual clock: jobs take exactly their planned (or listed) time, and decisions take none.
//
// It makes the same decisions as a run in real time, since `Control` makes them in both.  At every instant jobs end in
// the order of the tasks, then frames are released, then jobs are started once, then the monitor looks: the order of
// the simulator.
#pragma once

#include "control.hpp"
#include "journal.hpp"

namespace socsched {

// Run until all frames released before the horizon are done; return the length of the run.
Ns run_virtually(Control& control, Journal& journal);

}  // namespace socsched
