// How many jobs of each criticality are under way on a device, of all processes of a user: a file of shared memory with a
// row for each process.  Rows of processes that ended are ignored; without such a file each process counts its own.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace socsched {

class UnderWay {
 public:
  static constexpr size_t ROWS = 64;

  explicit UnderWay(const std::string& device, const std::string& folder = "/dev/shm") {
    const std::string path = folder + "/socsched-" + std::to_string(geteuid()) + "-" + device;
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return;
    struct stat is {};
    void* memory = MAP_FAILED;
    if (fstat(file, &is) == 0 && is.st_uid == geteuid() && S_ISREG(is.st_mode) && ftruncate(file, sizeof(Row) * ROWS) == 0)
      memory = mmap(nullptr, sizeof(Row) * ROWS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return;
    rows_ = static_cast<Row*>(memory);
    const int32_t me = getpid();
    for (size_t i = 0; i < ROWS; i++) {
      int32_t owner = rows_[i].process.load();
      if (owner != 0 && owner != me && !ended(owner)) continue;
      if (!rows_[i].process.compare_exchange_strong(owner, me)) continue;
      for (std::atomic<int32_t>& count : rows_[i].counts) count = 0;
      own_ = &rows_[i];
      return;
    }
  }
  ~UnderWay() {
    if (own_ != &local_) own_->process = 0;
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  void begin(int criticality) { own_->counts[static_cast<size_t>(criticality)]++; }
  void end(int criticality) { own_->counts[static_cast<size_t>(criticality)]--; }

  // Whether a job above a criticality is under way, here or in another process that lives.
  bool above(int criticality) const {
    if (any(*own_, criticality)) return true;
    for (size_t i = 0; rows_ && i < ROWS; i++)
      if (&rows_[i] != own_ && any(rows_[i], criticality) && !ended(rows_[i].process)) return true;
    return false;
  }

 private:
  struct Row {
    std::atomic<int32_t> process{0};
    std::array<std::atomic<int32_t>, 3> counts{};
  };
  static_assert(std::atomic<int32_t>::is_always_lock_free);

  static bool any(const Row& row, int criticality) {
    for (size_t above = static_cast<size_t>(criticality) + 1; above < row.counts.size(); above++)
      if (row.counts[above].load(std::memory_order_relaxed) > 0) return true;
    return false;
  }
  static bool ended(int32_t process) { return process <= 0 || (kill(process, 0) != 0 && errno == ESRCH); }

  Row local_;
  Row* rows_ = nullptr;
  Row* own_ = &local_;
};

}  // namespace socsched
