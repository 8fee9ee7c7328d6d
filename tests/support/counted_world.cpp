#include "tests/support/counted_world.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/group/operation.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/comm/world.h"

namespace deepspeed::testing {
namespace {

using comm::GroupDescription;
using comm::ProcessGroup;
using comm::Work;

class CountedGroup final : public comm::GroupImpl {
 public:
  CountedGroup(ProcessGroup inner, std::shared_ptr<CallNotes> notes)
      : GroupImpl(GroupDescription{inner.name(), inner.backend(), inner.device_type(), inner.rank(),
                                   inner.global_ranks(), inner.timeout()}),
        inner_(std::move(inner)),
        notes_(std::move(notes)) {}

  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const override { return inner_.c10d_group(); }

  Work start(const comm::Operation& operation, const comm::Caller&) override {
    const at::Tensor whole = comm::whole_tensor_of(operation);
    if (whole.defined()) {
      notes_->push_back({comm::name_of(operation), static_cast<int64_t>(whole.nbytes()), description().size(),
                         comm::CallSubject::current()});
    }
    return inner_.start(operation);
  }

 private:
  ProcessGroup inner_;
  std::shared_ptr<CallNotes> notes_;
};

}  // namespace

comm::World counted_world(const comm::World& world, std::shared_ptr<CallNotes> notes) {
  comm::Job job;
  job.rank = world.rank();
  job.world_size = world.size();
  job.local_rank = world.local_rank();
  job.local_size = world.local_size();
  job.timeout = world.group().timeout();
  const auto make_group = [world, notes](const comm::GroupRequest& request) {
    auto inner = request.key == "0/world" ? world.group()
                 : request.is_own         ? world.own_group(request.name, "", request.global_ranks)
                                          : world.new_group(request.global_ranks, request.name);
    return ProcessGroup(std::make_shared<CountedGroup>(std::move(inner), notes));
  };
  return comm::World(std::make_shared<comm::WorldImpl>(job, make_group));
}

int64_t count_calls(const CallNotes& notes, const std::string& collective, const std::string& subject) {
  return std::ranges::count_if(notes, [&](const NotedCall& call) {
    return call.collective == collective && call.subject.starts_with(subject);
  });
}

}  // namespace deepspeed::testing
