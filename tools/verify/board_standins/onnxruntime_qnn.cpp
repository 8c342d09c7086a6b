// libonnxruntime.so with a QNN provider that is none: the real library's functions, except those that ask for the provider.
// Sessions compute elsewhere, see computed.hpp.
#include <dlfcn.h>
#include <map>
#include <mutex>

#include "computed.hpp"

enum { CREATE_STATUS = 0, CREATE_SESSION = 7, RUN = 9, CREATE_TENSOR = 49, ADD_CONFIG_ENTRY = 130, REGISTER = 301, GET_DEVICES = 303, APPEND_V2 = 304, PROVIDER_NAME = 312, FUNCTIONS = 320 };
struct Base { void* const* (*GetApi)(uint32_t); const char* (*GetVersionString)(); };
static const Base* real;
static void* table[FUNCTIONS];
static std::mutex guard;
static std::map<const void*, standin::Bytes> contents;  // of tensors

static void* nothing() { return nullptr; }

static void* devices(void*, const void* const** found, size_t* count) {
  static const void* const only[] = {table};
  *found = only, *count = 1;
  return nullptr;
}

static const char* provider(const void*) { return "QNNExecutionProvider"; }

static void* configure(void* options, const char* name, const char* value) {
  if (!std::strcmp(name, "session.disable_cpu_ep_fallback")) return nullptr;
  return reinterpret_cast<void* (*)(void*, const char*, const char*)>(real->GetApi(22)[ADD_CONFIG_ENTRY])(options, name, value);
}

// A session is the name of its stage: the folders STAGE/ENGINE-PRECISION of its file.
static void* session(void*, const char* file, void*, void** made) {
  const std::string path = file, folder = path.substr(0, path.rfind('/'));
  const size_t engine = folder.rfind('/'), stage = folder.rfind('/', engine - 1) + 1;
  *made = new std::string(folder.substr(stage, engine - stage) + "_" + folder.substr(engine + 1));
  return nullptr;
}

static void* tensor(const void* where, void* memory, size_t bytes, const int64_t* shape, size_t rank, int type, void** made) {
  void* const status = reinterpret_cast<decltype(&tensor)>(real->GetApi(22)[CREATE_TENSOR])(where, memory, bytes, shape, rank, type, made);
  const std::lock_guard<std::mutex> lock(guard);
  return contents[*made] = {memory, bytes}, status;
}

static void* run(void* stage, void*, const char* const*, const void* const* given, size_t count, const char* const*, size_t outputs, void* const* made) {
  std::vector<standin::Bytes> from, to;
  {
    const std::lock_guard<std::mutex> lock(guard);
    for (size_t i = 0; i < count; i++) from.push_back(contents.at(given[i]));
    for (size_t i = 0; i < outputs; i++) to.push_back(contents.at(made[i]));
  }
  if (standin::compute(*static_cast<std::string*>(stage), from, to)) return nullptr;
  return reinterpret_cast<void* (*)(int, const char*)>(real->GetApi(22)[CREATE_STATUS])(1, "nothing computes this stage");
}

static void* const* api(uint32_t version) {
  std::memcpy(table, real->GetApi(version), sizeof table);
  table[REGISTER] = table[APPEND_V2] = reinterpret_cast<void*>(nothing);
  table[GET_DEVICES] = reinterpret_cast<void*>(devices), table[PROVIDER_NAME] = reinterpret_cast<void*>(provider);
  table[ADD_CONFIG_ENTRY] = reinterpret_cast<void*>(configure), table[CREATE_SESSION] = reinterpret_cast<void*>(session);
  table[CREATE_TENSOR] = reinterpret_cast<void*>(tensor), table[RUN] = reinterpret_cast<void*>(run);
  return table;
}

static const char* version() { return real->GetVersionString(); }

extern "C" const Base* OrtGetApiBase() {
  static const Base own = {api, version};
  void* const library = dlopen(std::getenv("STANDIN_ORT"), RTLD_NOW | RTLD_LOCAL);
  if (!real) real = reinterpret_cast<const Base* (*)()>(dlsym(library, "OrtGetApiBase"))();
  return &own;
}
