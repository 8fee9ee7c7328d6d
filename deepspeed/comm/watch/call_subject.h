// A thread says what its collectives are about, for the texts of errors and for the comparison of what ranks
// call: ranks that gather different parameters of one size get an error that names both.
#pragma once

#include <string>

namespace deepspeed::comm {

/// While it lives, collectives that this thread starts are about `text`, e.g. "parameter 'head.weight'"; all
/// ranks of the group must say the same. The innermost one counts.
class CallSubject {
 public:
  explicit CallSubject(std::string text);
  ~CallSubject();
  CallSubject(const CallSubject&) = delete;
  CallSubject& operator=(const CallSubject&) = delete;

  /// Returns the text of this thread's innermost subject; "" where none lives.
  static const std::string& current();

 private:
  std::string text_;
  const CallSubject* outer_;
};

}  // namespace deepspeed::comm
