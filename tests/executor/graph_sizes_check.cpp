// Divides kernels into graphs: lines of LIMIT QUEUED TIME..., answered by QUEUED LONGEST END...
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "graph_sizes.hpp"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    socsched::Ns limit = 0;
    size_t queued = 0;
    words >> limit >> queued;
    std::vector<socsched::Ns> times;
    for (socsched::Ns time = 0; words >> time;) times.push_back(time);
    const socsched::GraphSizes made = socsched::graph_sizes(times, limit, queued);
    std::printf("%zu %lld", made.queued, static_cast<long long>(made.longest));
    for (const size_t end : made.ends) std::printf(" %zu", end);
    std::printf("\n");
  }
}
