// How many kernels each graph of a stage has that gives way between its graphs.
#pragma once

#include <algorithm>
#include <vector>

#include "realtime.hpp"

namespace socsched {

struct GraphSizes {
  std::vector<size_t> ends;  // by graph: the number of its last kernel, and one
  size_t queued = 1;         // graphs that may be queued at once
  Ns longest = 0;            // the most that so many in a row take
};

// Graphs of kernels that take so long, as few as `limit` lets: no `queued` of them in a row take longer, which is what
// bounds count.  Fewer are queued where a kernel is too long for that; one that alone takes longer is a graph of its own.
inline GraphSizes graph_sizes(const std::vector<Ns>& times, Ns limit, size_t queued) {
  for (queued = std::max(queued, size_t{1});; queued--) {
    GraphSizes made;
    made.queued = queued;
    std::vector<Ns> sums;
    for (size_t kernel = 0; kernel < times.size(); kernel++) {
      if (sums.empty() || sums.back() + times[kernel] > limit / static_cast<Ns>(queued)) {
        sums.push_back(0);
        made.ends.push_back(kernel);
      }
      sums.back() += times[kernel];
      made.ends.back() = kernel + 1;
    }
    for (size_t first = 0; first < sums.size(); first++) {
      Ns sum = 0;
      for (size_t i = first; i < std::min(first + queued, sums.size()); i++) sum += sums[i];
      made.longest = std::max(made.longest, sum);
    }
    if (made.longest <= limit || queued == 1) return made;
  }
}

}  // namespace socsched
