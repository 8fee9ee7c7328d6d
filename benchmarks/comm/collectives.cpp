// Times every collective by size on ranks of this machine over Gloo, beside what c10d's own operation and
// other compositions would take. Each result is verified before it is timed.
//
//     comm_collectives --ranks 2 --mib 1 16 64 --repeats 10
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <CLI/CLI.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/launcher/program_main.h"

namespace {

using deepspeed::comm::ProcessGroup;
using deepspeed::comm::World;

struct Settings {
  int ranks = 2;
  std::vector<double> mib{1, 16, 64};
  int repeats = 10;
  int port = 29611;
};

// One way to do one collective: `run` works on `input` and `output`, `expected` is what `output` then holds.
struct Candidate {
  const char* name;
  at::Tensor input;
  at::Tensor output;
  at::Tensor expected;
  std::function<void(Candidate&)> run;
};

void verify(const ProcessGroup& group, Candidate& candidate) {
  candidate.output.zero_();
  const auto input = candidate.input.clone();
  candidate.run(candidate);
  const bool right = at::equal(candidate.output, candidate.expected);
  candidate.input.copy_(input);
  if (group.all_reduce_scalar(right ? 0 : 1) > 0) {
    deepspeed::raise<deepspeed::Error>("benchmark", candidate.name, " gives a wrong result");
  }
}

// Median over the repeats of the slowest rank's time.
double median_ms(const ProcessGroup& group, Candidate& candidate, int repeats) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    candidate.run(candidate);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    times.push_back(group.all_reduce_scalar(time.count(), deepspeed::comm::ReduceOp::kMax));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// Sends every rank its block, then sums in fp32 (in rank order) and rounds once.
void exchange_and_sum(const ProcessGroup& group, const at::Tensor& output, const at::Tensor& input) {
  const auto received = at::empty_like(input);
  group.all_to_all(received, input);
  const auto blocks = received.view({group.size(), -1});
  if (input.scalar_type() == at::kFloat && group.size() == 2) {
    at::Tensor out = output;
    at::add_out(out, blocks[0], blocks[1]);
  } else {
    output.copy_(blocks.sum(0, false, at::kFloat));
  }
}

std::vector<Candidate> make_candidates(const World& world, int64_t total) {
  const auto group = world.group();
  const auto c10d = group.c10d_group();
  const int n = group.size();
  const int rank = group.rank();
  const auto part = total / n;
  const auto pattern = at::arange(total, at::kFloat).remainder(61);
  const auto sum = pattern * n + n * (n - 1) / 2;
  const auto own = (pattern + rank).contiguous();
  std::vector<Candidate> list;
  const auto add = [&](const char* name, const at::Tensor& input, const at::Tensor& expected, auto run) {
    list.push_back({name, input.clone(), at::zeros_like(expected), expected.contiguous(), run});
  };
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const bool wide = type == at::kFloat;
    add(wide                ? "all_reduce fp32"
        : type == at::kHalf ? "all_reduce fp16"
                            : "all_reduce bf16",
        own.to(type), sum.to(type), [=](Candidate& c) {
          c.output.copy_(c.input);
          group.all_reduce(c.output);
        });
    if (!wide) {
      add("  reduced and gathered in 16 bits", own.to(type), sum.to(type), [=](Candidate& c) {
        const auto mine = c.output.narrow(0, rank * part, part);
        exchange_and_sum(group, mine, c.input);
        group.all_gather(c.output, mine);
      });
    }
    add("  c10d's own", own.to(type), sum.to(type), [=](Candidate& c) {
      c.output.copy_(c.input);
      std::vector<at::Tensor> tensors{c.output};
      c10d->allreduce(tensors)->wait();
    });
  }
  add("broadcast", own, pattern + n - 1, [=](Candidate& c) {
    if (rank == n - 1) c.output.copy_(c.input);
    group.broadcast(c.output, n - 1);
  });
  const auto mine = own.narrow(0, rank * part, part);
  std::vector<at::Tensor> parts;
  for (int i = 0; i < n; ++i) parts.push_back(pattern.narrow(0, i * part, part) + i);
  add("all_gather", mine, at::cat(parts), [=](Candidate& c) { group.all_gather(c.output, c.input); });
  add("  c10d's own", mine, at::cat(parts), [=](Candidate& c) {
    std::vector<std::vector<at::Tensor>> outputs{c.output.chunk(n)};
    std::vector<at::Tensor> inputs{c.input};
    c10d->allgather(outputs, inputs)->wait();
  });
  const auto my_sum = sum.narrow(0, rank * part, part);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    add(type == at::kFloat ? "reduce_scatter fp32" : "reduce_scatter bf16", own.to(type), my_sum.to(type),
        [=](Candidate& c) { group.reduce_scatter(c.output, c.input); });
    add("  exchange and sum", own.to(type), my_sum.to(type),
        [=](Candidate& c) { exchange_and_sum(group, c.output, c.input); });
    add("  all-reduce in place and slice", own.to(type), my_sum.to(type), [=](Candidate& c) {
      group.all_reduce(c.input);
      c.output.copy_(c.input.narrow(0, rank * part, part));
    });
    add("  c10d's own", own.to(type), my_sum.to(type), [=](Candidate& c) {
      std::vector<at::Tensor> outputs{c.output};
      std::vector<std::vector<at::Tensor>> inputs{c.input.chunk(n)};
      c10d->reduce_scatter(outputs, inputs)->wait();
    });
  }
  std::vector<at::Tensor> swapped;
  for (int i = 0; i < n; ++i) swapped.push_back(pattern.narrow(0, rank * part, part) + i);
  add("all_to_all", own, at::cat(swapped), [=](Candidate& c) { group.all_to_all(c.output, c.input); });
  return list;
}

void run_rank(int rank, const Settings& settings) {
  at::set_num_threads(1);
  auto world =
      deepspeed::comm::init_distributed({.dist_backend = "gloo",
                                         .verbose = false,
                                         .timeout = std::chrono::seconds(120),
                                         .init_method = "tcp://127.0.0.1:" + std::to_string(settings.port),
                                         .rank = rank,
                                         .world_size = settings.ranks});
  for (const double mib : settings.mib) {
    auto total = static_cast<int64_t>(mib * (1 << 18));
    total -= total % settings.ranks;
    if (rank == 0)
      std::printf("%d ranks, %g MiB of fp32 (16-bit types: half the bytes)\n", settings.ranks, mib);
    for (auto& candidate : make_candidates(world, total)) {
      verify(world.group(), candidate);
      const double ms = median_ms(world.group(), candidate, settings.repeats);
      if (rank == 0) std::printf("  %-34s %9.3f ms\n", candidate.name, ms);
    }
    std::fflush(stdout);
  }
  world.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Times the collectives");
  app.add_option("--ranks", settings.ranks, "Ranks, each a process of this machine")->capture_default_str();
  app.add_option("--mib", settings.mib, "Sizes in MiB of fp32")->capture_default_str();
  app.add_option("--repeats", settings.repeats)->capture_default_str();
  app.add_option("--port", settings.port, "Port of the rendezvous")->capture_default_str();
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  int failed = 0;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    if (::fork() != 0) continue;
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
