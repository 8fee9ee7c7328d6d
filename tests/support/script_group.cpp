#include "tests/support/script_group.h"

#include <atomic>
#include <chrono>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <gtest/gtest.h>

#include "deepspeed/comm/init.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using c10d::ProcessGroupGloo;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

std::atomic<int> num_calls{0};

// c10d's own class, which counts what anyone does with it.
class CountingGloo : public ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return counted(), ProcessGroupGloo::allreduce(tensors, options);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return counted(), ProcessGroupGloo::broadcast(tensors, options);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return counted(), ProcessGroupGloo::allgather(outputs, inputs, options);
  }
  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    return counted(), ProcessGroupGloo::send(tensors, destination, tag);
  }
  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    return counted(), ProcessGroupGloo::recv(tensors, source, tag);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return counted(), ProcessGroupGloo::barrier(options);
  }
  void abort() override { counted(); }
  void shutdown() override { counted(); }

 private:
  static void counted() { ++num_calls; }
};

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> make_script_group(int rank, int size,
                                                         const c10::intrusive_ptr<c10d::Store>& store,
                                                         const std::string& name) {
  const auto own = c10::make_intrusive<c10d::PrefixStore>(name + "/", store);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(own, rank, size);
  auto options = ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto backend = c10::make_intrusive<CountingGloo>(c10::make_intrusive<c10d::PrefixStore>("cpu/", own),
                                                         rank, size, options);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setGroupName(name);
  return group;
}

ScriptGroup make_script_group(int rank, int size, const std::string& file) {
  const auto store = c10::make_intrusive<c10d::FileStore>(file, size);
  return {make_script_group(rank, size, store, "0"), store};
}

ScriptGroup make_script_group(int rank, int size, int port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = rank == 0;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  return {make_script_group(rank, size, store, "0"), store};
}

double script_sum(c10d::ProcessGroup& group, double value) {
  Tensors tensors = {at::full({1}, value, at::kDouble)};
  group.allreduce(tensors)->wait();
  return tensors.front().item<double>();
}

int num_script_calls() { return num_calls; }

std::vector<std::string> run_scripts(int size, const std::function<std::string(int rank)>& body) {
  const auto program = [&](int rank) {
    comm::destroy_process_group();  // the world of one that other tests of this process made
    return body(rank);
  };
  std::vector<std::string> values;
  for (const auto& outcome : fork_ranks(size, program, {.end_together = true})) {
    EXPECT_TRUE(outcome.ok()) << "rank " << values.size() << ", signal " << outcome.signal;
    for (const auto& failure : outcome.failures) ADD_FAILURE() << "rank " << values.size() << ": " << failure;
    values.push_back(outcome.value);
  }
  return values;
}

}  // namespace deepspeed::testing
