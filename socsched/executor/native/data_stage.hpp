// Stages that compute: they read tensors of other stages and sensors and write into their own slots.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "control.hpp"
#include "stage.hpp"

namespace socsched {

class DataStage : public Stage {
 public:
  explicit DataStage(const StagePlace& place);

  std::string error() const override { return error_; }

 protected:
  // An input of a job, converted if it lies otherwise than the stage wants it; null, with an error, if it does not fit.
  const Tensor* input(const Job& job, size_t number);

  // The same in the form in which it arrives.
  const Tensor* arriving(const Job& job, size_t number);

  Progress fail(const std::string& why) {
    error_ = place_.task.name + ": " + why;
    return Progress::failed;
  }

  StagePlace place_;

 private:
  struct Converted {
    Tensor tensor;
    void* place = nullptr;  // offered by the stage
    Memory memory;          // or its own
    size_t bytes = 0;
  };

  std::vector<int> data_;              // by input: the number of its data
  std::vector<Converted> converted_;   // by input
  std::string error_;
};

// Give outputs of a GPU stage their types: those of varying size have the rows of the input, or, on the host, those that
// their marking port has in use.
void set_rows(const StageSettings& settings, Data& output, int64_t rows);

std::unique_ptr<Stage> make_host_stage(const StagePlace& place);
std::unique_ptr<Stage> make_network_stage(const StagePlace& place);
std::unique_ptr<Stage> make_convert_stage(const StagePlace& place);
std::unique_ptr<Stage> make_cuda_stage(const StagePlace& place);
std::unique_ptr<Stage> make_load_stage(const StagePlace& place);
std::unique_ptr<Stage> make_opencl_stage(const StagePlace& place);
std::unique_ptr<Stage> make_engine_stage(const StagePlace& place);
std::unique_ptr<Stage> make_callback_stage(const StagePlace& place, size_t number);
std::unique_ptr<Stage> make_observed_stage(std::unique_ptr<Stage> stage, int socket);

}  // namespace socsched
