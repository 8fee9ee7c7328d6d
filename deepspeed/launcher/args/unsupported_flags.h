// Flags of DeepSpeed's launcher that this version knows but refuses, each with a way out. The parser accepts
// them, so that the user reads the reason instead of "unknown flag".
#pragma once

#include <deque>
#include <string>

namespace CLI {
class App;
}

namespace deepspeed::launcher {

class UnsupportedFlags {
 public:
  /// Adds the flags to `app`, hidden from its help. This object must outlive parsing.
  void add_to(CLI::App& app);

  /// Throws NotSupportedError for the first of them on the parsed command line.
  void refuse_given(const CLI::App& app) const;

 private:
  std::deque<std::string> values_;
};

}  // namespace deepspeed::launcher
