// libonnxruntime.so with a QNN provider that is none: the real library's functions, except those that ask for the provider.
// A context binary, which the processor cannot run, is replaced by the model that it was made of.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

enum { CREATE_SESSION = 7, ADD_CONFIG_ENTRY = 130, REGISTER = 301, GET_DEVICES = 303, APPEND_V2 = 304, PROVIDER_NAME = 312, FUNCTIONS = 320 };
struct Base { void* const* (*GetApi)(uint32_t); const char* (*GetVersionString)(); };
static const Base* real;
static void* table[FUNCTIONS];

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

static void* session(void* environment, const char* file, void* options, void** made) {
  std::string path = file;
  if (const size_t at = path.rfind("model_ctx.onnx"); at != std::string::npos) path = path.substr(0, at) + "model.onnx";
  return reinterpret_cast<void* (*)(void*, const char*, void*, void**)>(real->GetApi(22)[CREATE_SESSION])(environment, path.c_str(), options, made);
}

static void* const* api(uint32_t version) {
  std::memcpy(table, real->GetApi(version), sizeof table);
  table[REGISTER] = table[APPEND_V2] = reinterpret_cast<void*>(nothing);
  table[GET_DEVICES] = reinterpret_cast<void*>(devices), table[PROVIDER_NAME] = reinterpret_cast<void*>(provider);
  table[ADD_CONFIG_ENTRY] = reinterpret_cast<void*>(configure), table[CREATE_SESSION] = reinterpret_cast<void*>(session);
  return table;
}

static const char* version() { return real->GetVersionString(); }

extern "C" const Base* OrtGetApiBase() {
  static const Base own = {api, version};
  void* const library = dlopen(std::getenv("STANDIN_ORT"), RTLD_NOW | RTLD_LOCAL);
  if (!real) real = reinterpret_cast<const Base* (*)()>(dlsym(library, "OrtGetApiBase"))();
  return &own;
}
