#include "tests/simulated_cuda/device/stack.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

namespace deepspeed::simulated {
namespace {

const char* const kForeign[] = {"libtorch", "libc10", "libsimulated_cuda", "libc.so", "libstdc++", "libgcc"};

/// Asks addr2line, since the program's symbols are hidden from dladdr(). Each place is looked up once.
std::string name_of(const std::string& file, uintptr_t offset) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, uintptr_t>, std::string> names;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = names.try_emplace({file, offset});
  if (!is_new) return found->second;
  std::ostringstream place;
  place << "0x" << std::hex << offset;
  const std::string command = "addr2line -Cfpse '" + file + "' " + place.str() + " 2>/dev/null";
  std::array<char, 4096> line{};
  if (FILE* const pipe = ::popen(command.c_str(), "r")) {
    if (std::fgets(line.data(), line.size(), pipe) == nullptr) line[0] = '\0';
    ::pclose(pipe);
  }
  std::string name = line.data();
  name = name.substr(0, std::min<size_t>(name.find('\n'), 200));
  if (name.empty() || name.starts_with("??")) name = file.substr(file.rfind('/') + 1) + "+" + place.str();
  return found->second = name;
}

}  // namespace

Stack Stack::here() {
  Stack stack;
  stack.depth_ = ::backtrace(stack.frames_, kFrames);
  return stack;
}

std::string Stack::text(int most) const {
  std::string text;
  for (int i = 0, shown = 0; i < depth_ && shown < most; ++i) {
    Dl_info info{};
    if (::dladdr(frames_[i], &info) == 0 || info.dli_fname == nullptr) continue;
    const std::string file = info.dli_fname;
    if (std::ranges::any_of(kForeign, [&](const char* name) { return file.find(name) != file.npos; }))
      continue;
    const auto offset =
        reinterpret_cast<uintptr_t>(frames_[i]) - reinterpret_cast<uintptr_t>(info.dli_fbase) - 1;
    const std::string name = name_of(file, offset);
    if (name.find("testing::internal::") != name.npos || name.starts_with("testing::")) continue;
    text += "      " + name + "\n";
    ++shown;
  }
  return text;
}

std::string Stack::key() const {
  std::string key;
  for (int i = 0; i < std::min(depth_, 12); ++i)
    key += std::to_string(reinterpret_cast<uintptr_t>(frames_[i])) + ",";
  return key;
}

}  // namespace deepspeed::simulated
