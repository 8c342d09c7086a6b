#include "job.hpp"

#include <algorithm>

#include "failure.hpp"

namespace socsched {

Store::Store(const Size& size) : size_(size) {
  const size_t frames = size.jobs + size.joins;
  const double bytes = static_cast<double>(frames) * static_cast<double>(size.sources * 24 + size.data * 8) +
                       static_cast<double>(size.jobs) * static_cast<double>(size.reads * 8 + size.seats / 8 + sizeof(Job));
  if (bytes > double{1 << 30})
    throw Failure(USAGE, "the plan is too large for the native executor: its jobs would take more than 1 GiB",
                  "use fewer tasks or shorter queues");
  origins_.resize(frames * size.sources);
  data_.resize(frames * size.data);
  tickets_.resize(frames * size.sources);
  sampled_.resize(size.jobs * size.reads);
  blockers_.resize(size.jobs * words());
  jobs_.fill(size.jobs, [this](Job& job) {
    lay(job.given);
    job.sampled = sampled_.data() + jobs_laid_ * size_.reads;
    job.blockers = blockers_.data() + jobs_laid_ * words();
    jobs_laid_++;
  });
  joins_.fill(size.joins, [this](Join& join) { lay(join.frame); });
}

void Store::lay(Frame& frame) {
  frame.origins = origins_.data() + frames_laid_ * size_.sources;
  frame.tickets = tickets_.data() + frames_laid_ * size_.sources;
  frame.data = data_.data() + frames_laid_ * size_.data;
  frames_laid_++;
}

Job* Store::job() {
  Job* const job = jobs_.take();
  if (!job) return nullptr;
  const Frame frame = job->given;
  int64_t* const sampled = job->sampled;
  uint64_t* const blockers = job->blockers;
  *job = Job{};
  job->given = frame;
  job->sampled = sampled;
  job->blockers = blockers;
  std::fill_n(sampled, size_.reads, -1);
  std::fill_n(blockers, words(), 0);
  return job;
}

Join* Store::join() {
  Join* const join = joins_.take();
  if (!join) return nullptr;
  std::fill_n(join->frame.origins, size_.sources, Origin{});
  std::fill_n(join->frame.tickets, size_.sources, nullptr);
  std::fill_n(join->frame.data, size_.data, nullptr);
  join->arrived = 0;
  join->next = nullptr;
  return join;
}

}  // namespace socsched
