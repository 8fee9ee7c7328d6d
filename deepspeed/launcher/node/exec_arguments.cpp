#include "deepspeed/launcher/node/exec_arguments.h"

#include <utility>

namespace deepspeed::launcher {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ExecArguments::ExecArguments(std::vector<std::string> words, const Environment& environment)
    : words_(std::move(words)) {
  for (const auto& [name, value] : environment) entries_.push_back(name + "=" + value);
  argv_ = pointers_to(words_);
  envp_ = pointers_to(entries_);
}

}  // namespace deepspeed::launcher
