#include "deepspeed/comm/backends/observed_group.h"

#include <utility>
#include <variant>

#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/comm/watch/observer.h"

namespace deepspeed::comm {
namespace {

int peer_of(const Operation& operation) {
  if (const auto* broadcast = std::get_if<operations::Broadcast>(&operation)) return broadcast->root;
  if (const auto* send = std::get_if<operations::Send>(&operation)) return send->destination;
  if (const auto* recv = std::get_if<operations::Recv>(&operation)) return recv->source;
  return -1;
}

ObservedCall observed_call(const Operation& operation, const GroupDescription& group, bool by_nodes) {
  const at::Tensor whole = whole_tensor_of(operation);
  return {.name = name_of(operation),
          .bytes = whole.defined() ? static_cast<int64_t>(whole.nbytes()) : 0,
          .subject = CallSubject::current(),
          .group = group.name,
          .group_size = group.size(),
          .global_ranks = group.global_ranks,
          .rank = group.rank,
          .peer = peer_of(operation),
          .by_nodes = by_nodes};
}

// Tells observers once how the call ended: in the first wait() that returns or throws, or when the last copy
// of the Work is destroyed.
class ObservedWork : public WorkImpl {
 public:
  ObservedWork(Work work, Observation observation)
      : work_(std::move(work)), observation_(std::move(observation)) {}

  void wait() override {
    observation_.wait_begins();
    try {
      work_.wait();
    } catch (...) {
      observation_.end(ObservedCall::Outcome::kFailed);
      throw;
    }
    observation_.end(ObservedCall::Outcome::kDone);
  }

  bool is_completed() const override { return work_.is_completed(); }

 private:
  Work work_;
  Observation observation_;
};

}  // namespace

Work ObservedGroup::start(const Operation& operation, const Caller& caller) {
  if (!CallObserver::is_anyone_listening()) return run(operation, caller);
  Observation observation(observed_call(operation, description(), goes_by_nodes(operation)));
  try {
    return Work(std::make_shared<ObservedWork>(run(operation, caller), std::move(observation)));
  } catch (...) {
    observation.end(ObservedCall::Outcome::kFailed);
    throw;
  }
}

}  // namespace deepspeed::comm
