#include "deepspeed/comm/measure/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <ATen/Functions.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/log/comms_logger.h"
#include "deepspeed/comm/measure/known_collective.h"
#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::comm {
namespace {

void check(const MeasureOptions& options) {
  for (const auto& operation : options.operations) {
    const auto& known = measured_operations();
    if (std::find(known.begin(), known.end(), operation) == known.end()) {
      std::string names;
      for (const auto& name : known) names += (names.empty() ? "" : ", ") + name;
      raise<UsageError>("operation '", operation, "', expected one of ", names);
    }
  }
  for (const int64_t size : options.sizes)
    if (size < 1) raise<UsageError>("a size of ", size, " bytes, expected at least 1");
  if (options.trials < 1) raise<UsageError>("trials ", options.trials, ", expected at least 1");
  if (options.warmups < 0) raise<UsageError>("warmups ", options.warmups, ", expected at least 0");
}

void verify(const ProcessGroup& group, const std::string& operation, const KnownCollective& known) {
  known.run();
  // In 16 bits, sums over many ranks may round by half a unit in the last place per term.
  const double rounding = known.output.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
  const bool is_right =
      !known.expected.defined() || at::allclose(known.output.to(at::kDouble), known.expected.to(at::kDouble),
                                                rounding * (group.size() > 25 ? group.size() : 0), 0);
  if (group.all_reduce_scalar(is_right ? 0 : 1) > 0)
    raise<Error>(operation, " of ", known.bytes, " bytes gives a wrong result over ", group.backend());
}

double mean_milliseconds(const ProcessGroup& group, const KnownCollective& known,
                         const MeasureOptions& options) {
  for (int i = 0; i < options.warmups; ++i) known.run();
  group.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < options.trials; ++i) known.run();
  device::synchronize();
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  return group.all_reduce_scalar(time.count() / options.trials, ReduceOp::kMax);
}

}  // namespace

const std::vector<std::string>& measured_operations() {
  static const std::vector<std::string> names{"all_reduce", "all_gather", "reduce_scatter",
                                              "all_to_all", "broadcast",  "pt2pt"};
  return names;
}

std::vector<Measured> measure_collectives(const ProcessGroup& group, const MeasureOptions& options) {
  check(options);
  const auto tensors = at::TensorOptions().dtype(options.dtype).device(group.device_type());
  std::vector<Measured> all;
  for (const auto& operation : options.operations) {
    if (operation == "pt2pt" && group.size() == 1) continue;
    for (const int64_t size : options.sizes) {
      const auto known = known_collective(group, operation, size, tensors, options.in_buffers);
      verify(group, operation, known);
      const double milliseconds = mean_milliseconds(group, known, options);
      all.push_back({operation, known.bytes, milliseconds,
                     bandwidth_of(operation, known.bytes, milliseconds, group.size())});
    }
  }
  return all;
}

std::string measured_text(const std::vector<Measured>& all, int num_ranks, bool in_gigabytes) {
  const char* const unit = in_gigabytes ? "GB/s" : "Gbit/s";
  const double per = in_gigabytes ? 8 : 1;
  std::string text, operation;
  char line[160];
  for (const auto& row : all) {
    if (row.operation != operation) {
      operation = row.operation;
      std::snprintf(line, sizeof(line), "%s%s, %d ranks\n%12s %14s %16s %14s\n", text.empty() ? "" : "\n",
                    operation.c_str(), num_ranks, "size", "duration (ms)",
                    (std::string("algbw (") + unit + ")").c_str(),
                    (std::string("busbw (") + unit + ")").c_str());
      text += line;
    }
    std::snprintf(line, sizeof(line), "%12s %14.4f %16.3f %14.3f\n", byte_size_text(row.bytes).c_str(),
                  row.milliseconds, row.bandwidth.algorithm / per, row.bandwidth.bus / per);
    text += line;
  }
  return text;
}

}  // namespace deepspeed::comm
