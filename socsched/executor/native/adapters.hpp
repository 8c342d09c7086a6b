// The adapters that are part of the executor, and what they share.
#pragma once

#include <cstdio>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "adapter.h"

namespace socsched {

const socsched_adapter* onnxruntime_adapter();
const socsched_adapter* rknn_adapter();
const socsched_adapter* cudla_adapter();

template <class Loaded>
auto share_of(int) -> decltype(&Loaded::share, static_cast<uint64_t (*)(void*, uint64_t)>(nullptr)) {
  return [](void* loaded, uint64_t bytes) { return static_cast<Loaded*>(loaded)->share(bytes); };
}
template <class Loaded>
uint64_t (*share_of(...))(void*, uint64_t) {
  return nullptr;
}

template <class Loaded>
auto place_of(int) -> decltype(&Loaded::place, static_cast<void* (*)(void*, int32_t, size_t, uint64_t)>(nullptr)) {
  return [](void* loaded, int32_t is_output, size_t number, uint64_t bytes) -> void* {
    try {
      return static_cast<Loaded*>(loaded)->place(is_output, number, bytes);
    } catch (const std::exception&) {
      return nullptr;  // tensors are copied, then
    }
  };
}
template <class Loaded>
void* (*place_of(...))(void*, int32_t, size_t, uint64_t) {
  return nullptr;
}

// Memory that adapters of one kind made, by where it begins, and what each calls it: known to all artefacts of the process.
// It is never destroyed: an adapter that the board's compiler made ends the process otherwise (two C++ libraries at its exit).
template <class Handle>
class Memories {
 public:
  void add(void* memory, const Handle& handle) {
    const std::lock_guard<std::mutex> lock(guard_);
    handles_[memory] = handle;
  }

  // What it is called, null if others made it.
  const Handle* find(const void* memory) const {
    const std::lock_guard<std::mutex> lock(guard_);
    const auto found = handles_.find(memory);
    return found == handles_.end() ? nullptr : &found->second;
  }

 private:
  mutable std::mutex guard_;
  std::map<const void*, Handle> handles_;  // whose elements stay where they are
};

// An adapter made of a class with a constructor of an artefact and `run(inputs, outputs)`, which throw std::exception, and
// perhaps `share(bytes)` and `place(is_output, number, bytes)`.
template <class Loaded>
const socsched_adapter* adapter_of() {
  static const socsched_adapter adapter = {
      SOCSCHED_ADAPTER_VERSION,
      [](const socsched_artefact* artefact, char* error, size_t bytes) -> void* {
        try {
          return new Loaded(*artefact);
        } catch (const std::exception& raised) {
          std::snprintf(error, bytes, "%s", raised.what());
          return nullptr;
        }
      },
      [](void* loaded, const socsched_memory* inputs, const socsched_memory* outputs, char* error, size_t bytes) {
        try {
          static_cast<Loaded*>(loaded)->run(inputs, outputs);
          return 0;
        } catch (const std::exception& raised) {
          std::snprintf(error, bytes, "%s", raised.what());
          return 1;
        }
      },
      share_of<Loaded>(0), place_of<Loaded>(0)};
  return &adapter;
}

// A vendor's library, loaded at run time; errors are std::runtime_error.
class Library {
 public:
  explicit Library(const std::string& name) : name_(name), handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) throw std::runtime_error(name + " cannot be loaded: " + dlerror());
  }

  template <class F>
  void find(const char* symbol, F& function) const {
    function = reinterpret_cast<F>(dlsym(handle_, symbol));
    if (!function) throw std::runtime_error(name_ + " lacks " + symbol);
  }

  // The same; return whether it is there.
  template <class F>
  bool has(const char* symbol, F& function) const {
    function = reinterpret_cast<F>(dlsym(handle_, symbol));
    return function;
  }

 private:
  std::string name_;
  void* handle_;
};

inline std::vector<char> read_artefact(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (!file) throw std::runtime_error("cannot be read");
  std::vector<char> bytes;
  std::fseek(file, 0, SEEK_END);
  const long size = std::ftell(file);
  std::rewind(file);
  if (size > 0 && size < 0x7fffffff) bytes.resize(static_cast<size_t>(size));
  const bool whole = std::fread(bytes.data(), 1, bytes.size(), file) == bytes.size();
  std::fclose(file);
  if (!whole || bytes.empty()) throw std::runtime_error("expected a file of 1 byte to 2 GiB");
  return bytes;
}

}  // namespace socsched
