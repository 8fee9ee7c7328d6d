// Flags of DeepSpeed's launcher that this version knows and refuses, each with a way out. They are accepted
// by the parser so that a user reads why, in place of "unknown flag".
#pragma once

#include <deque>
#include <string>

namespace CLI {
class App;
}

namespace deepspeed::launcher {

class UnsupportedFlags {
 public:
  /// Adds the flags to `app`, hidden from its help. This object must outlive the parse.
  void add_to(CLI::App& app);

  /// Throws NotSupportedError for the first of them that the parsed command line holds.
  void refuse_given(const CLI::App& app) const;

 private:
  std::deque<std::string> values_;
};

}  // namespace deepspeed::launcher
