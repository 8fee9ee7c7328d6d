#include "tests/support/counted_world.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/comm/world_impl.h"

namespace deepspeed::testing {
namespace {

using comm::GroupDescription;
using comm::ProcessGroup;
using comm::ReduceOp;
using comm::Work;

class CountedGroup final : public ProcessGroup::Impl {
 public:
  CountedGroup(ProcessGroup inner, std::shared_ptr<CallNotes> notes)
      : Impl(GroupDescription{inner.name(), inner.backend(), inner.device_type(), inner.rank(),
                              inner.global_ranks(), inner.timeout()}),
        inner_(std::move(inner)),
        notes_(std::move(notes)) {}

  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const override { return inner_.c10d_group(); }

  Work start_all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    note("all_reduce", tensor);
    return inner_.start_all_reduce(tensor, op);
  }
  Work start_broadcast(const at::Tensor& tensor, int root) override {
    note("broadcast", tensor);
    return inner_.start_broadcast(tensor, root);
  }
  Work start_all_gather(const at::Tensor& output, const at::Tensor& input) override {
    note("all_gather", output);
    return inner_.start_all_gather(output, input);
  }
  Work start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    note("reduce_scatter", input);
    return inner_.start_reduce_scatter(output, input, op);
  }
  Work start_reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned) override {
    note("reduce_to_owners", tensor);
    return inner_.start_reduce_to_owners(tensor, owned);
  }
  Work start_all_to_all(const at::Tensor& output, const at::Tensor& input) override {
    note("all_to_all", output);
    return inner_.start_all_to_all(output, input);
  }
  Work start_send(const at::Tensor& tensor, int destination, int tag) override {
    note("send", tensor);
    return inner_.start_send(tensor, destination, tag);
  }
  Work start_recv(const at::Tensor& tensor, int source, int tag) override {
    note("recv", tensor);
    return inner_.start_recv(tensor, source, tag);
  }
  Work start_barrier() override { return inner_.start_barrier(); }
  void monitored_barrier(std::chrono::milliseconds timeout, bool wait_all_ranks) override {
    inner_.monitored_barrier(timeout, wait_all_ranks);
  }

 private:
  void note(const char* collective, const at::Tensor& whole) {
    notes_->push_back({collective, static_cast<int64_t>(whole.nbytes()), comm::CallSubject::current()});
  }

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
                 : request.is_own         ? world.own_group(request.name)
                                          : world.new_group(request.global_ranks, request.name);
    return ProcessGroup(std::make_shared<CountedGroup>(std::move(inner), notes));
  };
  return comm::World(std::make_shared<comm::World::Impl>(job, make_group));
}

int64_t count_calls(const CallNotes& notes, const std::string& collective, const std::string& subject) {
  return std::ranges::count_if(notes, [&](const NotedCall& call) {
    return call.collective == collective && call.subject.starts_with(subject);
  });
}

}  // namespace deepspeed::testing
