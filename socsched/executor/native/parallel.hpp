// The threads that compute a stage together.  Each has a part of a kernel's chunks, always the same, so that it finds in
// its cache what it wrote there, and then takes what others have left: one whose processor is disturbed computes fewer.
// In its last it goes on where one that waits for it was.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "realtime.hpp"
#include "mailbox.hpp"
#include "plan.hpp"

namespace socsched {

constexpr int CHUNKS = 8;       // of a thread, in a kernel that does not demand a number
constexpr Ns SPINNING = 50'000;    // how long a thread of a running job waits without sleeping
constexpr Ns GLANCE = 10'000;   // without processor time for so long, a thread is held up
constexpr uint64_t CLOSED = INT32_MAX;  // the next chunk of a round that has not begun

inline void sleep_on(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

inline void wake(std::atomic<uint32_t>& word, int count) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0); }

inline uint32_t round_of(uint64_t next) { return static_cast<uint32_t>(next >> 32); }

// A thread of a crew as the others see it: whether it computes a chunk, whether its processor runs somebody else
// meanwhile, and the processor that a waiting thread has given it then.

class Seat {
 public:
  // By the thread itself, before others look at it; its processors now are those of the crew.
  void take() {
    thread_ = static_cast<pid_t>(syscall(SYS_gettid));
    sched_getaffinity(0, sizeof processors_, &processors_);
  }

  // Around every chunk, by the thread itself.
  void begin() { computes_.store(true, std::memory_order_release); }
  void end() {
    computes_.store(false, std::memory_order_relaxed);
    if (state_.load(std::memory_order_acquire) == LENT) go_back();
  }

  // For a waiting thread: whether the thread got no processor time since the last call with the same `before`.
  bool is_held_up(Ns& before) const {
    if (!computes_.load(std::memory_order_acquire)) return false;
    timespec used{};
    if (clock_gettime(~thread_ * 8 | 6, &used) != 0) return false;  // its CPU time, as pthread_getcpuclockid names it
    const Ns now = Ns{used.tv_sec} * 1'000'000'000 + used.tv_nsec, last = before;
    before = now;
    return now == last;
  }

  // Let the thread go on where the calling thread is, which goes to sleep next; false if another has done so.
  bool lend() {
    State home = HOME;
    if (!state_.compare_exchange_strong(home, LENDING)) return false;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &here);
    const bool moved = sched_setaffinity(thread_, sizeof here, &here) == 0;  // refused for SCHED_DEADLINE
    state_.store(moved ? LENT : HOME, std::memory_order_release);
    return moved;
  }

 private:
  enum State { HOME, LENDING, LENT };

  void go_back() {
    cpu_set_t others = processors_;
    CPU_CLR(static_cast<size_t>(sched_getcpu()), &others);
    if (CPU_COUNT(&others)) sched_setaffinity(0, sizeof others, &others);
    sched_setaffinity(0, sizeof processors_, &processors_);
    state_.store(HOME);
  }

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
inline thread_local class Crew* current = nullptr;  // the one whose job the thread computes

class Crew {
 public:
  // Helpers inherit the caller's processors and scheduling class.
  explicit Crew(int threads) : parts_(static_cast<size_t>(threads)), seats_(parts_.size()), waits_(seats_.size()) {
    for (Wait& wait : waits_) wait.used.resize(seats_.size());
    seats_[0].take();
    for (size_t i = 1; i < seats_.size(); i++) helpers_.emplace_back([this, i] { help(i); });
  }

  ~Crew() {
    stop_ = true;
    begun_.fetch_add(1);
    wake(begun_, INT32_MAX);
    for (std::thread& helper : helpers_) helper.join();
  }

  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // The time of a job, for the calling thread: kernels that it launches meanwhile are shared with the helpers.
  class Job {
   public:
    explicit Job(Crew& crew) : crew_(crew), before_(current) {
      current = &crew;
      crew_.gate_.store(Gate::current(), std::memory_order_relaxed);
      crew_.busy_.store(true, std::memory_order_relaxed);
    }

    ~Job() {
      crew_.seats_[0].end();
      crew_.busy_.store(false, std::memory_order_relaxed);
      current = before_;
    }

   private:
    Crew& crew_;
    Crew* before_;
  };

  // Compute all chunks of a kernel and return 0, or the first code other than 0 that a chunk returned.
  int run(Chunk chunk, void* context, int chunks) {
    const uint32_t round = round_of(parts_[0].next.load(std::memory_order_relaxed)) + 1;
    for (Part& part : parts_) part.next.store(uint64_t{round} << 32 | CLOSED);  // first: a thread still at the last round takes none of these
    chunk_.store(chunk, std::memory_order_release);
    context_.store(context, std::memory_order_release);
    chunks_.store(chunks, std::memory_order_release);
    code_.store(0, std::memory_order_relaxed);
    left_.store(chunks, std::memory_order_relaxed);
    for (size_t i = 0; i < parts_.size(); i++) parts_[i].next.store(uint64_t{round} << 32 | static_cast<uint32_t>(first_of(i, chunks)));
    begun_.store(round);
    if (asleep_.load()) wake(begun_, INT32_MAX);
    take(round, 0);
    waits_[0].until = 0;
    while (ended_.load() != round) {
      if (awake(0)) {
        relax();
        continue;
      }
      waiting_.store(true);
      if (const uint32_t ended = ended_.load(); ended != round) sleep_on(ended_, ended);
      waiting_.store(false);
    }
    return code_.load(std::memory_order_relaxed);
  }

  int threads() const { return static_cast<int>(parts_.size()); }

 private:
  struct Wait {  // of a thread that has no more chunks
    Ns until = 0, glance = 0;  // it sleeps from then on; next look at the others
    std::vector<Ns> used;      // processor time of the others
  };

  struct alignas(64) Part {
    std::atomic<uint64_t> next{0};  // the round, and the number of the part's next chunk
  };

  void help(size_t seat) {
    pthread_setname_np(pthread_self(), "helper");
    short_turns();
    seats_[seat].take();
    uint32_t seen = 0;
    while (rest(seen, seat)) {
      take(seen = begun_.load(), seat);
    }
  }

  int first_of(size_t part, int chunks) const { return static_cast<int>(static_cast<int64_t>(chunks) * static_cast<int64_t>(part) / threads()); }

  // Compute chunks of a round, those of the seat's own part first and then what others have left.
  void take(uint32_t round, size_t seat) {
    int32_t done = 0;
    for (size_t i = 0; i < parts_.size(); i++)
      while (take_of((seat + i) % parts_.size(), round, seat, done)) {
      }
    if (!done || left_.fetch_sub(done) != done) return;
    ended_.store(round);
    if (waiting_.load()) wake(ended_, 1);
  }

  // Compute a chunk of a part; return false if none is left.
  bool take_of(size_t part, uint32_t round, size_t seat, int32_t& done) {
    if (Gate* const gate = gate_.load(std::memory_order_relaxed)) gate->pass();
    uint64_t next = parts_[part].next.load();
    while (true) {
      const int number = static_cast<int>(static_cast<uint32_t>(next));
      ChunkGroup group{nullptr, chunks_.load(std::memory_order_acquire)};
      const Chunk chunk = chunk_.load(std::memory_order_acquire);
      void* const context = context_.load(std::memory_order_acquire);
      if (round_of(next) != round || number >= first_of(part + 1, group.chunks)) return false;
      // The round cannot end before this chunk does, so that what was read above belongs to it if the exchange succeeds.
      if (!parts_[part].next.compare_exchange_weak(next, next + 1)) continue;
      seats_[seat].begin();
      if (const int code = chunk(number, &group, context)) code_.store(code, std::memory_order_relaxed);
      seats_[seat].end();
      done++;
      return true;
    }
  }

  // Wait for another round than the one seen; false at the end.
  bool rest(uint32_t seen, size_t seat) {
    waits_[seat].until = 0;
    while (!stop_.load()) {
      if (begun_.load() != seen) return true;
      if (busy_.load(std::memory_order_relaxed) && awake(seat)) {
        relax();
        continue;
      }
      asleep_.fetch_add(1);
      if (begun_.load() == seen && !stop_.load()) sleep_on(begun_, seen);
      asleep_.fetch_sub(1);
    }
    return false;
  }

  // Whether to wait without sleeping; gives the processor to a thread that is held up in its last chunk.
  bool awake(size_t seat) {
    const Ns now = monotonic_ns();
    Wait& wait = waits_[seat];
    if (!wait.until) {
      wait.until = now + SPINNING;
      wait.glance = now + GLANCE;
    }
    if (now >= wait.until) return false;
    if (now < wait.glance) return true;
    wait.glance = now + GLANCE;
    for (size_t i = 0; i < seats_.size(); i++)
      if (i != seat && seats_[i].is_held_up(wait.used[i]) && seats_[i].lend()) {
        wait.until = now;
        return false;
      }
    return true;
  }

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
inline int launch_in_parallel(Chunk chunk, void* context, int chunks) {
  Crew* const crew = current;
  if (!crew || crew->threads() == 1) {
    ChunkGroup group{nullptr, 1};
    return chunk(0, &group, context);
  }
  return crew->run(chunk, context, chunks > 0 ? chunks : CHUNKS * crew->threads());
}

}  // namespace socsched
