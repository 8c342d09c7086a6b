// libonnxruntime.so with a QNN provider that is none: the functions of the real library ($STANDIN_ORT), except those that ask
// for the provider.  Sessions compute elsewhere, see computed.hpp, or are the real library's where there is no $STANDIN_SOCKET.
// It notes bytes of tensors that lie in memory shared with the DSP, and of others; with $STANDIN_COPIES there is no such memory.
#include <dlfcn.h>
#include <map>
#include <mutex>

#include "computed.hpp"

enum { CREATE_STATUS = 0, CREATE_SESSION = 7, RUN = 9, CREATE_TENSOR = 49, CREATE_MEMORY_INFO = 68, CREATE_CPU_MEMORY_INFO = 69, ALLOCATE = 75, ADD_CONFIG_ENTRY = 130, CREATE_ALLOCATOR = 131, REGISTER = 301, GET_DEVICES = 303, APPEND_V2 = 304, PROVIDER_NAME = 312, FUNCTIONS = 320 };
struct Base { void* const* (*GetApi)(uint32_t); const char* (*GetVersionString)(); };
static const Base* real;
static void* table[FUNCTIONS];
static std::mutex guard;
static std::map<const void*, standin::Bytes> contents;  // of tensors
static char shared;                                     // stands for that kind of memory, and for what makes it

template <class F>
static F original(size_t position) { return reinterpret_cast<F>(real->GetApi(22)[position]); }

static void* failed(const char* why) { return original<void* (*)(int, const char*)>(CREATE_STATUS)(1, why); }

static void* nothing() { return nullptr; }

static void* devices(void*, const void* const** found, size_t* count) {
  static const void* const only[] = {table};
  *found = only, *count = 1;
  return nullptr;
}

static const char* provider(const void*) { return "QNNExecutionProvider"; }

static void* configure(void* options, const char* name, const char* value) {
  if (!std::strcmp(name, "session.disable_cpu_ep_fallback")) return nullptr;
  return original<decltype(&configure)>(ADD_CONFIG_ENTRY)(options, name, value);
}

// As Qualcomm's provider without libcdsprpc.so.
static void* append(void*, void*, const void* const*, size_t, const char* const* names, const char* const*, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!std::strcmp(names[i], "enable_htp_shared_memory_allocator") && std::getenv("STANDIN_COPIES")) return failed("Unable to load backend, libcdsprpc.so");
  return nullptr;
}

static void* memory_info(const char* name, int kind, int number, int type, void** made) {
  if (std::strcmp(name, "QnnHtpShared")) return original<decltype(&memory_info)>(CREATE_MEMORY_INFO)(name, kind, number, type, made);
  return *made = &shared, nullptr;
}

static void* allocator(const void*, const void* info, void** made) {
  if (info != &shared) return failed("no such memory");
  return *made = &shared, nullptr;
}

static void* allocate(void*, size_t bytes, void** made) {
  standin::note("memory %zu", bytes);
  return *made = std::aligned_alloc(64, (bytes + 63) / 64 * 64), nullptr;
}

// A session is the name of its stage: the folders STAGE/ENGINE-PRECISION of its file.
static void* session(void* environment, const char* file, void* options, void** made) {
  if (!std::getenv("STANDIN_SOCKET")) return original<decltype(&session)>(CREATE_SESSION)(environment, file, options, made);
  const std::string path = file, folder = path.substr(0, path.rfind('/'));
  const size_t engine = folder.rfind('/'), stage = folder.rfind('/', engine - 1) + 1;
  *made = new std::string(folder.substr(stage, engine - stage) + "_" + folder.substr(engine + 1));
  return nullptr;
}

static void* tensor(const void* where, void* memory, size_t bytes, const int64_t* shape, size_t rank, int type, void** made) {
  static void* host = nullptr;
  if (!host) original<void* (*)(int, int, void**)>(CREATE_CPU_MEMORY_INFO)(1, 0, &host);
  standin::note("%s %zu", where == &shared ? "shared" : "copied", bytes);
  if (where == &shared) where = host;
  void* const status = original<decltype(&tensor)>(CREATE_TENSOR)(where, memory, bytes, shape, rank, type, made);
  const std::lock_guard<std::mutex> lock(guard);
  return contents[*made] = {memory, bytes}, status;
}

static void* run(void* stage, const void* how, const char* const* names, const void* const* given, size_t count, const char* const* output_names, size_t outputs, void* const* made) {
  if (!std::getenv("STANDIN_SOCKET")) return original<decltype(&run)>(RUN)(stage, how, names, given, count, output_names, outputs, made);
  std::vector<standin::Bytes> from, to;
  {
    const std::lock_guard<std::mutex> lock(guard);
    for (size_t i = 0; i < count; i++) from.push_back(contents.at(given[i]));
    for (size_t i = 0; i < outputs; i++) to.push_back(contents.at(made[i]));
  }
  if (standin::compute(*static_cast<std::string*>(stage), from, to)) return nullptr;
  return failed("nothing computes this stage");
}

static void* const* api(uint32_t version) {
  std::memcpy(table, real->GetApi(version), sizeof table);
  table[REGISTER] = reinterpret_cast<void*>(nothing), table[APPEND_V2] = reinterpret_cast<void*>(append);
  table[CREATE_MEMORY_INFO] = reinterpret_cast<void*>(memory_info), table[ALLOCATE] = reinterpret_cast<void*>(allocate);
  table[CREATE_ALLOCATOR] = reinterpret_cast<void*>(allocator);
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
