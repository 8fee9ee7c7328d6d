#include "deepspeed/launcher/args/unsupported_flags.h"

#include <CLI/CLI.hpp>

#include "deepspeed/base/error.h"

namespace deepspeed::launcher {
namespace {

struct Flag {
  const char* name;
  bool takes_value;
  const char* way_out;
};

constexpr Flag kFlags[] = {
    {"--autotuning", true, "set the batch sizes and the ZeRO stage in the config"},
};

}  // namespace

void UnsupportedFlags::add_to(CLI::App& app) {
  for (const Flag& flag : kFlags) {
    // An empty group keeps the flag out of --help.
    if (flag.takes_value) {
      app.add_option(flag.name, values_.emplace_back())->group("");
    } else {
      app.add_flag(flag.name)->group("");
    }
  }
}

void UnsupportedFlags::refuse_given(const CLI::App& app) const {
  for (const Flag& flag : kFlags) {
    if (app.count(flag.name) > 0) {
      raise<NotSupportedError>(flag.name, " is not supported yet; ", flag.way_out);
    }
  }
}

}  // namespace deepspeed::launcher
