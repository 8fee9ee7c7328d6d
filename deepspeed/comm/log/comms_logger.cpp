// Records calls by operation and size, and times each until it ends. Makes tables of the records, of this
// rank alone or compared with the fastest rank of a group.
#include "deepspeed/comm/log/comms_logger.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/ops/tensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/watch/observer.h"

namespace deepspeed::comm {
namespace {

const std::vector<std::string>& known_operations() {
  static const std::vector<std::string> names = {
      "all_reduce", "broadcast", "all_gather",       "reduce_scatter", "all_to_all",
      "send",       "recv",      "reduce_to_owners", "barrier",        "monitored_barrier"};
  return names;
}

void check_operations(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::ranges::find(known_operations(), name) != known_operations().end()) continue;
    std::string known;
    for (const std::string& one : known_operations()) known += (known.empty() ? "" : ", ") + one;
    raise<UsageError>("comms_logger.prof_ops: \"", name, "\" is not an operation, expected some of ", known);
  }
}

/// Returns the mean of `value` over the items without its smallest and largest tenth.
template <class Items, class Value>
double trimmed_mean(const Items& items, const Value& value) {
  std::vector<double> values;
  for (const auto& item : items) values.push_back(value(item));
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t cut = values.size() / 10;
  const auto begin = values.begin() + long(cut), end = values.end() - long(cut);
  return std::accumulate(begin, end, 0.0) / double(end - begin);
}

std::string formatted(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string columns(const std::vector<std::string>& cells) {
  std::string row;
  for (const std::string& cell : cells) {
    row += cell;
    if (cell.size() < 20) row.append(20 - cell.size(), ' ');
  }
  while (!row.empty() && row.back() == ' ') row.pop_back();
  return row + "\n";
}

double milliseconds_of(const ObservedCall& call) {
  return std::chrono::duration<double, std::milli>(call.end - call.begin).count();
}

}  // namespace

double CommsRecord::mean_milliseconds() const {
  return trimmed_mean(milliseconds, [](double one) { return one; });
}

Bandwidth CommsRecord::mean_bandwidth() const {
  return {trimmed_mean(bandwidths, [](const Bandwidth& one) { return one.algorithm; }),
          trimmed_mean(bandwidths, [](const Bandwidth& one) { return one.bus; })};
}

class CommsLogger::Impl {
 public:
  mutable std::mutex mutex;
  CommsLoggerOptions options;
  Records records;
  LinkBytes link_bytes;
  std::unique_ptr<CallObserver> observer;

  void note(const ObservedCall& call) {
    if (call.outcome != ObservedCall::Outcome::kDone) return;
    const std::lock_guard lock(mutex);
    const bool is_watched =
        options.prof_all || std::ranges::find(options.prof_ops, call.name) != options.prof_ops.end();
    if (!is_watched) return;
    const double time = milliseconds_of(call);
    const Bandwidth bandwidth = bandwidth_of(call.name, call.bytes, time, call.group_size);
    std::string name = call.name;
    if (options.debug && !call.subject.empty()) name += " | " + call.subject;
    CommsRecord& record = records[name][call.bytes];
    record.milliseconds.push_back(time);
    record.bandwidths.push_back(bandwidth);
    link_bytes += received_bytes(call.name, call.bytes,
                                 {.global_ranks = call.global_ranks,
                                  .rank = call.rank,
                                  .peer = call.peer,
                                  .ranks_per_node = options.ranks_per_node,
                                  .by_nodes = call.by_nodes});
    if (!options.verbose) return;
    log::info("comm op: ", name, " | time (ms): ", formatted("%.2f", time),
              " | msg size: ", byte_size_text(call.bytes),
              " | algbw (Gbps): ", formatted("%.2f", bandwidth.algorithm),
              " | busbw (Gbps): ", formatted("%.2f", bandwidth.bus));
  }
};

CommsLogger::CommsLogger() : impl_(std::make_unique<Impl>()) {}
CommsLogger::~CommsLogger() = default;

CommsLogger& CommsLogger::instance() {
  // It outlives the process's groups, whose calls report to it until they end.
  static auto* const logger = new CommsLogger();
  return *logger;
}

void CommsLogger::start(const CommsLoggerOptions& options) {
  check_operations(options.prof_ops);
  const std::lock_guard lock(impl_->mutex);
  impl_->options = options;
  if (!impl_->observer)
    impl_->observer =
        std::make_unique<CallObserver>([impl = impl_.get()](const ObservedCall& call) { impl->note(call); });
}

void CommsLogger::stop() {
  std::unique_ptr<CallObserver> observer;
  {
    const std::lock_guard lock(impl_->mutex);
    observer.swap(impl_->observer);
  }
}

bool CommsLogger::is_on() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->observer != nullptr;
}

void CommsLogger::start_profiling_comms() {
  const std::lock_guard lock(impl_->mutex);
  impl_->options.prof_all = true;
}

void CommsLogger::stop_profiling_comms() {
  const std::lock_guard lock(impl_->mutex);
  impl_->options.prof_all = false;
}

void CommsLogger::start_profiling_op(const std::vector<std::string>& operations) {
  check_operations(operations);
  const std::lock_guard lock(impl_->mutex);
  auto& watched = impl_->options.prof_ops;
  watched.insert(watched.end(), operations.begin(), operations.end());
}

void CommsLogger::stop_profiling_op(const std::vector<std::string>& operations) {
  check_operations(operations);
  const std::lock_guard lock(impl_->mutex);
  std::erase_if(impl_->options.prof_ops, [&](const std::string& name) {
    return std::ranges::find(operations, name) != operations.end();
  });
}

void CommsLogger::reset() {
  const std::lock_guard lock(impl_->mutex);
  impl_->records.clear();
  impl_->link_bytes = {};
}

CommsLogger::Records CommsLogger::records() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->records;
}

LinkBytes CommsLogger::link_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->link_bytes;
}

namespace {

// Returns the fastest rank's time of each call, by operation and size; nothing if the ranks made different
// calls.
std::optional<CommsLogger::Records> fastest(const CommsLogger::Records& own, const ProcessGroup& ranks) {
  std::string calls;
  for (const auto& [name, sizes] : own) {
    for (const auto& [bytes, record] : sizes)
      calls += message(name, "/", bytes, "/", record.milliseconds.size(), ";");
  }
  const std::vector<std::string> of_all = ranks.all_gather_text(calls);
  if (std::ranges::any_of(of_all, [&](const std::string& other) { return other != calls; }))
    return std::nullopt;
  CommsLogger::Records result = own;
  for (auto& [name, sizes] : result) {
    for (auto& [bytes, record] : sizes) {
      at::Tensor times = at::tensor(record.milliseconds, at::kDouble);
      if (ranks.size() > 1) ranks.all_reduce(times, ReduceOp::kMin);
      record.milliseconds.assign(times.data_ptr<double>(), times.data_ptr<double>() + times.numel());
    }
  }
  return result;
}

}  // namespace

std::string CommsLogger::summary(const ProcessGroup& stragglers_among) const {
  const Records own = records();
  const LinkBytes links = link_bytes();
  std::optional<Records> of_fastest;
  std::string text;
  if (stragglers_among) {
    of_fastest = fastest(own, stragglers_among);
    if (!of_fastest) text += "no straggler analysis: the ranks made different calls\n";
  }
  std::vector<std::string> head = {"Comm. Op",          "Message Size",    "Count",
                                   "Total Latency(ms)", "Avg Latency(ms)", "tput_avg (Gbps)",
                                   "busbw_avg (Gbps)"};
  if (of_fastest) head.insert(head.end(), {"Total comm lat(ms)", "Total straggler(ms)"});
  text += columns(head);
  for (const auto& [name, sizes] : own) {
    text += name + "\n";
    for (const auto& [bytes, record] : sizes) {
      const Bandwidth bandwidth = record.mean_bandwidth();
      const double total = std::accumulate(record.milliseconds.begin(), record.milliseconds.end(), 0.0);
      std::vector<std::string> row = {"",
                                      byte_size_text(bytes),
                                      std::to_string(record.milliseconds.size()),
                                      formatted("%.2f", total),
                                      formatted("%.2f", record.mean_milliseconds()),
                                      formatted("%.2f", bandwidth.algorithm),
                                      formatted("%.2f", bandwidth.bus)};
      if (of_fastest) {
        const auto& least = of_fastest->at(name).at(bytes).milliseconds;
        const double communication = std::accumulate(least.begin(), least.end(), 0.0);
        row.push_back(formatted("%.2f", communication));
        row.push_back(formatted("%.2f", total - communication));
      }
      text += columns(row);
    }
  }
  return text + message("received within nodes: ", byte_size_text(int64_t(links.within_node)),
                        ", between nodes: ", byte_size_text(int64_t(links.between_nodes)));
}

std::string byte_size_text(int64_t bytes) {
  double value = double(bytes);
  const std::array<const char*, 5> units = {" B", " KB", " MB", " GB", " TB"};
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return (unit == 0 ? std::to_string(bytes) : formatted("%.2f", value)) + units[unit];
}

}  // namespace deepspeed::comm
