// Times collectives over shared memory, with tensors that peers read where they lie and with others that are
// copied, beside c10d's Gloo and the direct exchange over sockets, all in one run. Each result is verified
// before it is timed.
//
//     comm_shared_memory --ranks 2 --mib 64 --rounds 9
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <CLI/CLI.hpp>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/adopt.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/making/buffer.h"
#include "deepspeed/launcher/program_main.h"

namespace {

using deepspeed::comm::ProcessGroup;
using deepspeed::comm::World;

struct Settings {
  int ranks = 2;
  double mib = 64;
  int rounds = 9;
  int port = 29613;
};

// Holds the ranks' groups three times: over shared memory, over the direct exchange, and c10d's own Gloo.
struct Ways {
  World world;
  ProcessGroup shared;
  World sockets_world;
  ProcessGroup sockets;
  c10::intrusive_ptr<c10d::ProcessGroup> gloo;
};

Ways connect(int rank, const Settings& settings) {
  Ways ways;
  ::setenv("DEEPSPEED_SHARED_MEMORY", "1", 1);
  ways.world =
      deepspeed::comm::init_distributed({.dist_backend = "gloo",
                                         .verbose = false,
                                         .timeout = std::chrono::seconds(120),
                                         .init_method = "tcp://127.0.0.1:" + std::to_string(settings.port),
                                         .rank = rank,
                                         .world_size = settings.ranks});
  ways.shared = ways.world.group();
  const auto shown = ways.shared.c10d_group();
  if (shown->getBackend(at::kCPU)->getBackendName() != "shm")
    deepspeed::raise<deepspeed::Error>("the ranks do not share memory; the log says why");
  const auto store = c10::make_intrusive<c10d::PrefixStore>("bench", shown->getStore());
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(120));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  ways.gloo = c10::make_intrusive<c10d::ProcessGroup>(store, rank, settings.ranks);
  ways.gloo->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                        c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, settings.ranks, options));
  ways.gloo->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  ways.gloo->setGroupName("bench");
  ::setenv("DEEPSPEED_SHARED_MEMORY", "0", 1);
  ways.sockets_world = deepspeed::comm::adopt({.group = ways.gloo, .timeout = std::chrono::seconds(120)});
  ways.sockets = ways.sockets_world.group();
  return ways;
}

// One way to do one collective: `run` reads `input` and writes `output`, which then holds `expected`.
struct Candidate {
  std::string name;
  at::Tensor input, output, expected;
  std::function<void(Candidate&)> run;
  bool is_baseline = false;  // the others of the collective are compared with it
  std::vector<double> times = {};
};

void verify(const ProcessGroup& group, Candidate& candidate) {
  const auto input = candidate.input.clone();
  if (!candidate.output.is_alias_of(candidate.input)) candidate.output.zero_();
  candidate.run(candidate);
  const bool is_right = at::equal(candidate.output, candidate.expected);
  candidate.input.copy_(input);
  if (group.all_reduce_scalar(is_right ? 0 : 1) > 0)
    deepspeed::raise<deepspeed::Error>(candidate.name, " gives a wrong result");
}

std::vector<Candidate> make_candidates(const Ways& ways, int64_t numel, at::ScalarType type) {
  const int n = ways.shared.size(), rank = ways.shared.rank();
  const int64_t part = numel / n;
  const auto pattern = at::arange(numel, at::kFloat).remainder(31);
  const auto own = (pattern + rank).to(type).contiguous();
  const auto sum = (pattern * n + n * (n - 1) / 2).to(type).contiguous();
  const auto my_sum = sum.narrow(0, rank * part, part);
  const auto mine = own.narrow(0, rank * part, part);
  std::vector<at::Tensor> parts;
  for (int i = 0; i < n; ++i) parts.push_back((pattern.narrow(0, i * part, part) + i).to(type));
  const auto all = at::cat(parts);
  const auto shared = [&](const at::Tensor& tensor) {
    const auto copy = deepspeed::comm::buffer(tensor.numel(), tensor.options());
    copy.copy_(tensor);
    return copy;
  };
  const bool has_gloo = type == at::kFloat;  // which has no bf16 in some of its collectives
  std::vector<Candidate> list;
  const auto add = [&](std::string name, const at::Tensor& input, const at::Tensor& output,
                       const at::Tensor& expected, std::function<void(Candidate&)> run,
                       bool is_baseline = false) {
    list.push_back({std::move(name), input, output, expected, std::move(run), is_baseline});
  };
  const auto private_copy = [](const at::Tensor& tensor) { return tensor.clone(); };
  const auto reduce_scatter = [](const ProcessGroup& group) {
    return [group](Candidate& c) { group.reduce_scatter(c.output, c.input); };
  };
  const auto all_gather = [](const ProcessGroup& group) {
    return [group](Candidate& c) { group.all_gather(c.output, c.input); };
  };
  const auto all_reduce = [](const ProcessGroup& group) {
    return [group](Candidate& c) { group.all_reduce(c.input); };
  };
  if (has_gloo) {
    add(
        "reduce-scatter: c10d Gloo", private_copy(own), at::zeros_like(my_sum), my_sum,
        [gloo = ways.gloo, n](Candidate& c) {
          std::vector<at::Tensor> outputs{c.output};
          std::vector<std::vector<at::Tensor>> inputs{c.input.chunk(n)};
          gloo->reduce_scatter(outputs, inputs)->wait();
        },
        true);
  }
  add("reduce-scatter: direct exchange", private_copy(own), at::zeros_like(my_sum), my_sum,
      reduce_scatter(ways.sockets), !has_gloo);
  add("reduce-scatter: shared, staged", private_copy(own), at::zeros_like(my_sum), my_sum,
      reduce_scatter(ways.shared));
  const auto in_place = shared(own);
  add("reduce-scatter: shared, where it lies", in_place, in_place.narrow(0, rank * part, part), my_sum,
      reduce_scatter(ways.shared));
  if (has_gloo) {
    add(
        "all-gather: c10d Gloo", private_copy(mine), at::zeros_like(all), all,
        [gloo = ways.gloo, n](Candidate& c) {
          std::vector<std::vector<at::Tensor>> outputs{c.output.chunk(n)};
          std::vector<at::Tensor> inputs{c.input};
          gloo->allgather(outputs, inputs)->wait();
        },
        true);
  }
  add("all-gather: direct exchange", private_copy(mine), at::zeros_like(all), all, all_gather(ways.sockets),
      !has_gloo);
  add("all-gather: shared, staged", private_copy(mine), at::zeros_like(all), all, all_gather(ways.shared));
  const auto gathered = shared(at::zeros_like(all));
  gathered.narrow(0, rank * part, part).copy_(mine);
  add("all-gather: shared, where it lies", gathered.narrow(0, rank * part, part), gathered, all,
      all_gather(ways.shared));
  const auto add_all_reduce = [&](const char* name, const at::Tensor& tensor, auto run, bool is_baseline) {
    add(name, tensor, tensor, sum, run, is_baseline);
  };
  if (has_gloo) {
    add_all_reduce(
        "all-reduce: c10d Gloo", private_copy(own),
        [gloo = ways.gloo](Candidate& c) {
          std::vector<at::Tensor> tensors{c.input};
          gloo->allreduce(tensors)->wait();
        },
        true);
  }
  add_all_reduce("all-reduce: direct exchange", private_copy(own), all_reduce(ways.sockets), !has_gloo);
  add_all_reduce("all-reduce: shared, staged", private_copy(own), all_reduce(ways.shared), false);
  add_all_reduce("all-reduce: shared, where it lies", shared(own), all_reduce(ways.shared), false);
  return list;
}

// In turns, so that what else the machine does meets all of them; the slowest rank counts. Sums that grow
// without end would be slow numbers, so that the inputs become zeros.
void time_in_turns(const ProcessGroup& group, std::vector<Candidate>& list, int rounds, int inner) {
  for (Candidate& candidate : list) candidate.input.zero_();
  for (int round = 0; round < rounds; ++round) {
    for (Candidate& candidate : list) {
      group.barrier();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < inner; ++i) candidate.run(candidate);
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
      candidate.times.push_back(
          group.all_reduce_scalar(time.count() / inner, deepspeed::comm::ReduceOp::kMax));
    }
  }
}

void print(std::vector<Candidate>& list, double scale, const char* unit) {
  double baseline = 0;
  for (Candidate& candidate : list) {
    std::sort(candidate.times.begin(), candidate.times.end());
    const double least = candidate.times.front(), median = candidate.times[candidate.times.size() / 2];
    if (candidate.is_baseline) baseline = least;
    std::printf("  %-40s min %9.2f  median %9.2f %s  x%.1f\n", candidate.name.c_str(), least * scale,
                median * scale, unit, baseline / least);
  }
  std::fflush(stdout);
}

void run_rank(int rank, const Settings& settings) {
  at::set_num_threads(1);
  Ways ways = connect(rank, settings);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto bytes = static_cast<int64_t>(settings.mib * (1 << 20));
    for (const int64_t size : {bytes, int64_t{1024}}) {
      const int64_t numel =
          size / static_cast<int64_t>(at::elementSize(type)) / settings.ranks * settings.ranks;
      auto list = make_candidates(ways, numel, type);
      for (Candidate& candidate : list) verify(ways.shared, candidate);
      const bool is_small = size == 1024;
      time_in_turns(ways.shared, list, settings.rounds, is_small ? 200 : 1);
      if (rank != 0) continue;
      std::printf("%d ranks, %s of %s\n", settings.ranks,
                  is_small ? "1 KiB" : (std::to_string(static_cast<int64_t>(settings.mib)) + " MiB").c_str(),
                  type == at::kFloat ? "fp32" : "bf16");
      print(list, is_small ? 1000 : 1, is_small ? "us" : "ms");
    }
  }
  ways.sockets_world.shutdown();
  ways.world.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Times collectives over shared memory beside those over sockets");
  app.add_option("--ranks", settings.ranks, "Ranks, each a process of this machine")->capture_default_str();
  app.add_option("--mib", settings.mib, "Size in MiB")->capture_default_str();
  app.add_option("--rounds", settings.rounds)->capture_default_str();
  app.add_option("--port", settings.port, "Port of the rendezvous")->capture_default_str();
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  int failed = 0;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      run_rank(rank, settings);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      std::_Exit(1);
    }
    std::_Exit(0);
  }
  for (int rank = 0; rank < settings.ranks; ++rank) {
    int status = 0;
    ::wait(&status);
    failed += status != 0;
  }
  return failed == 0 ? 0 : 1;
}
