// Lets a thread name what its collectives are about. The name appears in errors and is compared between
// ranks: if ranks gather different parameters of the same size, the error names both.
#pragma once

#include <string>

namespace deepspeed::comm {

/// Names the subject of this thread's collectives during its lifetime, e.g. "parameter 'head.weight'". All
/// ranks of the group must give the same text. The innermost one applies.
class CallSubject {
 public:
  explicit CallSubject(std::string text);
  ~CallSubject();
  CallSubject(const CallSubject&) = delete;
  CallSubject& operator=(const CallSubject&) = delete;

  /// Returns the text of this thread's innermost subject, or "".
  static const std::string& current();

 private:
  std::string text_;
  const CallSubject* outer_;
};

}  // namespace deepspeed::comm
