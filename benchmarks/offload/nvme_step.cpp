// offload_nvme_step --folder DIR: Adam over states that lie on a disk, against what the disk itself gives
// with requests of the same size and number, as a ratio, with a timeline of reads, steps and writes. With
// --fio what the disk gives is what fio reaches, which reads and writes as many bytes as a step does.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>

#include <CLI/CLI.hpp>

#include "deepspeed/launcher/program_main.h"
#include "deepspeed/optim/algorithms/adam.h"
#include "deepspeed/zero/offload/state_swapper.h"

#include "benchmarks/offload/disk_peer.h"

namespace {

using deepspeed::optim::Adam;
using deepspeed::optim::FlatSlice;
using deepspeed::optim::ParamGroup;
using deepspeed::optim::Segment;
using deepspeed::zero::StateSwapper;
using deepspeed::zero::StateSwapperOptions;
using deepspeed::zero::SwapSpan;
using Seconds = std::chrono::duration<double>;

struct Arguments : deepspeed::benchmarks::DiskArguments {
  int64_t unit_numel = 4 << 20;
  size_t units = 12;
  bool timeline = true;
};

/// Adam's masters and moments, as an engine keeps them of its slices.
class Slices {
 public:
  Slices(size_t count, int64_t numel) : adam_({ParamGroup()}, {}), segments_{{0, {0, numel}, 0, {numel}}} {
    for (size_t id = 0; id < count; ++id) {
      FlatSlice& slice = slices_.emplace_back();
      slice.id = id;
      slice.master = at::ones({numel}, at::kFloat).mul_(double(id));
      slice.segments = &segments_;
      order.push_back(id);
    }
    gradient_ = at::linspace(-1.0, 1.0, numel, at::kFloat);
  }

  void step(size_t id) {
    slices_[id].gradient = gradient_;
    adam_.step(slices_[id], 1.0);
  }
  std::vector<at::Tensor> tensors(size_t id) const {
    std::vector<at::Tensor> tensors = {slices_[id].master};
    for (const auto& [name, tensor] : adam_.state(id).tensors) tensors.push_back(tensor);
    return tensors;
  }

  std::vector<size_t> order;

 private:
  Adam adam_;
  std::vector<Segment> segments_;
  std::vector<FlatSlice> slices_;
  at::Tensor gradient_;
};

void require(bool condition, const char* what) {
  if (condition) return;
  std::cerr << "wrong result: " << what << "\n";
  std::exit(1);
}

void verify(const StateSwapperOptions& options) {
  constexpr int64_t kNumel = 100'003;
  Slices kept(5, kNumel), swapped(5, kNumel);
  StateSwapper swapper(options, [&](size_t id) { return swapped.tensors(id); });
  swapper.for_each(swapped.order, StateSwapper::Access::kChange, [](size_t) {});
  for (int step = 0; step < 3; ++step) {
    for (const size_t id : kept.order) kept.step(id);
    swapper.for_each(swapped.order, StateSwapper::Access::kChange, [&](size_t id) { swapped.step(id); });
  }
  swapper.for_each(swapped.order, StateSwapper::Access::kRead, [&](size_t id) {
    for (size_t index = 0; index < 3; ++index)
      require(swapped.tensors(id)[index].equal(kept.tensors(id)[index]), "a state that was on the disk");
  });
}

void print_timeline(const std::vector<SwapSpan>& spans) {
  constexpr int kWidth = 72;
  const auto begin = spans.front().begin;
  SwapSpan::Time end = begin;
  for (const SwapSpan& span : spans) end = std::max(end, span.end);
  const double whole = Seconds(end - begin).count();
  const auto column = [&](SwapSpan::Time time) {
    return int(Seconds(time - begin).count() / whole * kWidth);
  };
  std::vector<std::string> rows;
  for (const SwapSpan& span : spans) {
    if (rows.size() <= span.unit) rows.resize(span.unit + 1, std::string(kWidth + 1, ' '));
    const char mark = span.kind == SwapSpan::Kind::kRead    ? 'r'
                      : span.kind == SwapSpan::Kind::kWrite ? 'w'
                                                            : 'S';
    for (int at = column(span.begin); at <= column(span.end); ++at) {
      char& cell = rows[span.unit][size_t(at)];
      if (cell != 'S') cell = mark;
    }
  }
  std::cout << "  one line a slice; r: read, S: step, w: write, each until it was waited for\n";
  for (const std::string& row : rows) std::cout << "  |" << row << "|\n";
}

struct Measured {
  double of_disk = 0.0;   // the rate of a pass, of the disk's own
  double stepping = 0.0;  // the part of its time in which Adam steps
  std::vector<SwapSpan> spans;
};

/// The median of passes that alternate with measurements of the disk, since a disk is not equally fast at all
/// times.
Measured measure(const Arguments& arguments, StateSwapperOptions options) {
  const int64_t bytes = int64_t(arguments.units) * arguments.unit_numel * 12;
  std::vector<SwapSpan> spans;
  options.observe = [&](const SwapSpan& span) { spans.push_back(span); };
  Slices slices(arguments.units, arguments.unit_numel);
  StateSwapper swapper(options, [&](size_t id) { return slices.tensors(id); });
  const auto pass = [&] {
    swapper.for_each(slices.order, StateSwapper::Access::kChange, [&](size_t id) { slices.step(id); });
  };
  pass();  // makes the states
  std::vector<Measured> passes;
  for (int loop = 0; loop < arguments.loops; ++loop) {
    const double of_disk = arguments.seconds({bytes, bytes});
    spans.clear();
    const auto begin = std::chrono::steady_clock::now();
    pass();
    const double seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
    Measured measured{of_disk / seconds, 0.0, spans};
    for (const SwapSpan& span : spans) {
      if (span.kind == SwapSpan::Kind::kWork)
        measured.stepping += Seconds(span.end - span.begin).count() / seconds;
    }
    passes.push_back(std::move(measured));
  }
  std::sort(passes.begin(), passes.end(), [](const auto& a, const auto& b) { return a.of_disk < b.of_disk; });
  return passes[passes.size() / 2];
}

void run(const Arguments& arguments) {
  for (const auto& [read, write] : {std::pair(false, false), {true, false}, {true, true}}) {
    const StateSwapperOptions options{
        .folder = arguments.folder, .aio = arguments.aio, .pipeline_read = read, .pipeline_write = write};
    verify(options);
    const Measured measured = measure(arguments, options);
    std::cout << std::fixed << std::setprecision(2) << "pipeline_read " << read << ", pipeline_write "
              << write << ": " << measured.of_disk << arguments.of_the_rate() << ", with a step that takes "
              << measured.stepping << " of the time\n";
    if (arguments.timeline) print_timeline(measured.spans);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Adam over states on a disk against the disk's own rate");
  Arguments arguments;
  arguments.add_to(app);
  app.add_option("--elements", arguments.unit_numel, "Of a slice");
  app.add_option("--slices", arguments.units, "How many");
  app.add_flag("!--no_timeline", arguments.timeline, "Leave the timelines out");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  try {
    run(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
