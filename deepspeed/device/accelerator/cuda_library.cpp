#include "deepspeed/device/accelerator/cuda_library.h"

#include <atomic>

#include <dlfcn.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/version.h"

namespace deepspeed::device {
namespace {

struct CudaLibrary {
  void* handle = nullptr;
  bool has_driver = false;
  std::string why_not;
};

std::string last_error() {
  const char* const text = dlerror();
  return text == nullptr ? "no reason is given" : text;
}

CudaLibrary load() {
  CudaLibrary result;
  if (env::get("DS_ACCELERATOR") == "cpu") {
    result.why_not = "DS_ACCELERATOR is 'cpu'; unset it";
    return result;
  }
  // This checks for the driver without starting it. A started driver would not survive a fork.
  result.has_driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  if (*cuda_architectures() == '\0') {
    result.why_not =
        "this build has no CUDA; build it again with CUDA's compiler, nvcc, on PATH or in "
        "$CUDA_HOME/bin (docs/installation.md)";
  } else if (!result.has_driver) {
    result.why_not = "this machine has no NVIDIA driver (libcuda.so.1)";
  } else {
    result.handle = dlopen(cuda_library(), RTLD_NOW | RTLD_LOCAL);
    if (result.handle == nullptr) {
      result.why_not = "the CUDA part of the library could not be loaded (" + last_error() +
                       "); it needs a torch with CUDA, of the version that it was built with";
    }
  }
  return result;
}

const CudaLibrary& library() {
  static const CudaLibrary loaded = load();
  return loaded;
}

const void* find_in_library(const char* name) {
  void* const handle = library().handle;
  return handle == nullptr ? nullptr : dlsym(handle, name);
}

constinit std::atomic<const void* (*)(const char*)> find_table = &find_in_library;

bool has_own_tables() { return find_table.load() == &find_in_library; }

// Runs before main(): torch checks for CUDA only once, at its first query.
[[maybe_unused]] const bool is_loaded_early = has_own_tables() && library().handle != nullptr;

}  // namespace

const void* find_cuda_table(const char* name) { return find_table.load()(name); }

std::string why_no_cuda() { return has_own_tables() ? library().why_not : ""; }

bool misses_cuda() { return has_own_tables() && library().has_driver && library().handle == nullptr; }

void use_cuda_tables(const void* (*find)(const char* name)) { find_table = find; }

}  // namespace deepspeed::device
