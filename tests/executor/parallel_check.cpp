// Computes rounds of chunks with a crew, as kernels of a stage do; prints the number of chunks not computed exactly once.
#include <atomic>
#include <cstdio>
#include <vector>

#include "parallel.hpp"

namespace {

struct Round {
  std::vector<int> computed;
  int fails = -1;  // the number of a chunk
};

int compute(int number, socsched::ChunkGroup* group, void* context) {
  Round& round = *static_cast<Round*>(context);
  if (group->chunks == static_cast<int>(round.computed.size())) round.computed[static_cast<size_t>(number)]++;
  return number == round.fails ? 7 : 0;
}

}  // namespace

int main() {
  int wrong = 0;
  for (const int threads : {1, 2, 5}) {
    socsched::Crew crew(threads);
    for (int n = 0; n < 300; n++) {
      const socsched::Crew::Job job(crew);
      for (const int chunks : {1, 3, 40}) {
        Round round{std::vector<int>(static_cast<size_t>(threads == 1 ? 1 : chunks)), n % 7 ? -1 : 0};
        const int code = socsched::launch_in_parallel(compute, &round, chunks);
        wrong += code != (round.fails < 0 ? 0 : 7);
        for (const int times : round.computed) wrong += times != 1;
      }
    }
  }
  Round alone{std::vector<int>(1), -1};
  wrong += socsched::launch_in_parallel(compute, &alone, 0) != 0 || alone.computed[0] != 1;  // outside a job: one chunk
  std::printf("%d\n", wrong);
}
