#include "deepspeed/comm/watch/call_subject.h"

#include <utility>

namespace deepspeed::comm {
namespace {
thread_local const CallSubject* innermost_subject = nullptr;
}

CallSubject::CallSubject(std::string text)
    : text_(std::move(text)), outer_(std::exchange(innermost_subject, this)) {}

CallSubject::~CallSubject() { innermost_subject = outer_; }

const std::string& CallSubject::current() {
  static const std::string none;
  return innermost_subject == nullptr ? none : innermost_subject->text_;
}

}  // namespace deepspeed::comm
