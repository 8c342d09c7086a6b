// Computes rounds of chunks with a crew, as kernels of a stage do; prints the number of chunks not computed exactly once.
#include <atomic>
#include <cstdio>
#include <sched.h>
#include <thread>
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

int compute_long(int number, socsched::ChunkGroup* group, void* context) {
  for (volatile int n = 0; n < 20'000; n = n + 1) {
  }
  return compute(number, group, context);
}

// Rounds on two processors, one of which another thread keeps busy: threads in their last chunk change places.
int disturbed() {
  cpu_set_t before, after, one;
  sched_getaffinity(0, sizeof before, &before);
  CPU_ZERO(&one);
  for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    sched_setaffinity(0, sizeof one, &one);
    while (!stop) {
    }
  });
  int wrong = 0;
  {
    socsched::Crew crew(2);
    for (int n = 0; n < 10'000; n++) {
      sched_getaffinity(0, sizeof after, &after);
      stop = n >= 140;  // then threads go back to where they belong, sooner or later on a machine that others use too
      if (n >= 150 && CPU_EQUAL(&before, &after)) break;
      const socsched::Crew::Job job(crew);
      for (int kernel = 0; kernel < 3; kernel++) {
        Round round{std::vector<int>(9), -1};
        wrong += socsched::launch_in_parallel(compute_long, &round, 9);
        for (const int times : round.computed) wrong += times != 1;
      }
    }
  }
  busy.join();
  return wrong + !CPU_EQUAL(&before, &after);
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
  wrong += disturbed();
  std::printf("%d\n", wrong);
}
