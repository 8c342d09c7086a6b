#include "data_stage.hpp"

#include <algorithm>

#include "failure.hpp"

namespace socsched {

namespace {

// Whether a tensor has the shape that a stage takes; a fixed size may be divided among axes in another way.
bool fits(const TensorType& wanted, const TensorType& found) {
  if (wanted.fixed()) return wanted.elements() >= 0 && wanted.elements() == found.elements();
  bool equal = wanted.rank == found.rank;
  for (int i = 0; i < wanted.rank; i++) {
    const int64_t size = wanted.shape[static_cast<size_t>(i)];
    equal &= size < 0 || size == found.shape[static_cast<size_t>(i)];
  }
  return equal;
}

// Brings the outputs of another stage into other data types and layouts, port by port.
class ConvertStage : public DataStage {
 public:
  using DataStage::DataStage;

  Progress launch(const Job& job) override {
    for (size_t i = 0; i < place_.settings.inputs.size(); i++) {
      const InputSettings& wanted = place_.settings.inputs[i];
      const Tensor* const from = arriving(job, i);
      if (!from) return Progress::failed;
      Tensor& to = job.output->ports[wanted.port];
      to.type = from->type.form(wanted.type);
      to.data = place_.slots.room(*job.output, wanted.port, to.type.bytes());
      if (!convert(*from, to)) return fail("no conversion between these data types");
    }
    return Progress::done;
  }
};

}  // namespace

DataStage::DataStage(const StagePlace& place) : place_(place) {
  for (const InputSettings& input : place.settings.inputs) {
    const int data = place.control.data_number(place.control.names().find(input.from));
    if (data < 0) throw Failure(USAGE, place.task.name + ": reads " + input.from + ", which it does not need", "write the settings again");
    data_.push_back(data);
  }
  converted_.resize(data_.size());
}

const Tensor* DataStage::arriving(const Job& job, size_t number) {
  const InputSettings& wanted = place_.settings.inputs[number];
  const Data* const data = job.given.data[data_[number]];
  if (!data || wanted.port >= data->ports.size() || (!data->ports[wanted.port].data && !data->ports[wanted.port].device)) {
    fail("no data from " + wanted.from);
    return nullptr;
  }
  return &data->ports[wanted.port];
}

const Tensor* DataStage::input(const Job& job, size_t number) {
  const Tensor* const found = arriving(job, number);
  if (!found) return nullptr;
  const InputSettings& wanted = place_.settings.inputs[number];
  if (!found->data && found->device) {
    fail("data from " + wanted.from + " are on the device only");
    return nullptr;
  }
  if (!fits(wanted.type, found->type)) {
    fail("data from " + wanted.from + " have another shape than it takes");
    return nullptr;
  }
  if (found->type.lies_as(wanted.type)) return found;
  Converted& own = converted_[number];
  own.tensor.type = found->type.form(wanted.type);
  if (const size_t bytes = own.tensor.type.bytes(); own.bytes < bytes) {
    const Offer offered = own.bytes ? Offer{} : offer(number);
    const bool placed = offered.bytes >= bytes;
    const size_t room = placed ? offered.bytes : bytes + bytes / 4;  // sizes vary a little between frames
    require_room(bytes, 1, place_.task.name);
    own.place = placed ? offered.memory : nullptr;
    own.memory = placed ? nullptr : allocate(room);
    own.bytes = room;
  }
  own.tensor.data = own.place ? own.place : own.memory.get();
  if (convert(*found, own.tensor)) return &own.tensor;
  fail("data from " + wanted.from + " have another data type than it takes");
  return nullptr;
}

void set_rows(const StageSettings& settings, Data& output, int64_t rows) {
  int64_t used = -1;
  if (const int port = settings.marks; port >= 0 && output.ports[static_cast<size_t>(port)].data) {
    const int32_t* const marks = static_cast<const int32_t*>(output.ports[static_cast<size_t>(port)].data);
    const int64_t most = settings.outputs[static_cast<size_t>(port)].shape[0];
    used = std::count_if(marks, marks + most, [&](int32_t mark) { return mark >= settings.least_mark; });
  }
  for (size_t port = 0; port < settings.outputs.size(); port++) {
    TensorType& type = output.ports[port].type;
    type = settings.outputs[port];
    if (type.rank && type.shape[0] < 0) type.shape[0] = rows;
    if (type.rank && used >= 0) type.shape[0] = used;
  }
}

std::unique_ptr<Stage> make_convert_stage(const StagePlace& place) { return std::make_unique<ConvertStage>(place); }

}  // namespace socsched
