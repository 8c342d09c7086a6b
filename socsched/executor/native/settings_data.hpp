// The parts of run.json that describe stages and the frames of sensors.
#pragma once

#include <map>
#include <string>

#include "settings.hpp"

namespace socsched {

// The path of a file named in the settings, relative to their folder.
std::string path_next_to(const std::string& settings, const std::string& name);

// The type of a tensor; `free`: how many of its sizes, from the first on, may be -1.
TensorType read_type(const JsonField& from, int free);

std::map<std::string, StageSettings> read_stages(const JsonField& from, const std::string& path);
std::map<std::string, SensorSettings> read_inputs(const JsonField& from, const std::string& path);

}  // namespace socsched
