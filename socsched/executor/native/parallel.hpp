// The threads that compute a stage together.  Each has a part of a kernel's chunks, always the same, so that it finds in
// its cache what it wrote there, and then takes what others have left: one whose processor is disturbed computes fewer.
// In its last it goes on where one that waits for it was.
#pragma once

#include <atomic>
#include <cstdint>
#include <sched.h>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "gate.hpp"
#include "plan.hpp"

namespace socsched {

// A thread of a crew as the others see it: whether it computes a chunk, whether its processor runs somebody else
// meanwhile, and the processor that a waiting thread has given it then.

class Seat {
 public:
  void take();  // by the thread itself, before others look at it; its processors now are those of the crew

  // Around every chunk, by the thread itself.
  void begin() { computes_.store(true, std::memory_order_release); }
  void end() {
    computes_.store(false, std::memory_order_relaxed);
    if (state_.load(std::memory_order_acquire) == LENT) go_back();
  }

  // For a waiting thread: whether the thread got no processor time since the last call with the same `before`.
  bool is_held_up(Ns& before) const;

  // Let the thread go on where the calling thread is, which goes to sleep next; false if another has done so.
  bool lend();

 private:
  enum State { HOME, LENDING, LENT };

  void go_back();

  std::atomic<bool> computes_{false};
  std::atomic<State> state_{HOME};
  pid_t thread_ = 0;
  cpu_set_t processors_{};
};

// What generated code passes to its chunks (TVMParallelGroupEnv of TVM's c_backend_api.h).
struct ChunkGroup {
  void* barrier;
  int32_t chunks;
};

using Chunk = int (*)(int number, ChunkGroup* group, void* context);

// A calling thread and its helpers.  Helpers sleep between jobs; during a job, when the stage owns their processors,
// they stay awake for a short time between kernels.
class Crew {
 public:
  explicit Crew(int threads);  // helpers inherit the caller's processors and scheduling class
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // The time of a job, for the calling thread: kernels that it launches meanwhile are shared with the helpers.
  class Job {
   public:
    explicit Job(Crew& crew);
    ~Job();

   private:
    Crew& crew_;
    Crew* before_;
  };

  // Compute all chunks of a kernel and return 0, or the first code other than 0 that a chunk returned.
  int run(Chunk chunk, void* context, int chunks);
  int threads() const { return static_cast<int>(parts_.size()); }

 private:
  struct Wait {  // of a thread that has no more chunks
    Ns until = 0, glance = 0;  // it sleeps from then on; next look at the others
    std::vector<Ns> used;      // processor time of the others
  };

  struct alignas(64) Part {
    std::atomic<uint64_t> next{0};  // the round, and the number of the part's next chunk
  };

  void help(size_t seat);
  int first_of(size_t part, int chunks) const;
  void take(uint32_t round, size_t seat);
  bool take_of(size_t part, uint32_t round, size_t seat, int32_t& done);
  bool rest(uint32_t seen, size_t seat);  // wait for another round than the one seen; false at the end
  bool awake(size_t seat);  // whether to wait without sleeping; gives the processor to a thread that is held up in its last chunk

  std::vector<Part> parts_;
  alignas(64) std::atomic<Chunk> chunk_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int32_t> chunks_{0};
  alignas(64) std::atomic<int32_t> left_{0};   // chunks not yet computed
  std::atomic<int32_t> code_{0};
  alignas(64) std::atomic<uint32_t> begun_{0}, ended_{0};  // rounds; threads sleep on them
  std::atomic<int32_t> asleep_{0};             // helpers
  std::atomic<bool> waiting_{false};           // the caller sleeps
  std::atomic<bool> busy_{false}, stop_{false};
  std::atomic<Gate*> gate_{nullptr};           // of the job
  std::vector<Seat> seats_;  // the caller's, then the helpers'
  std::vector<Wait> waits_;
  std::vector<std::thread> helpers_;
};

// Takes the place of TVMBackendParallelLaunch.
int launch_in_parallel(Chunk chunk, void* context, int chunks);

}  // namespace socsched
