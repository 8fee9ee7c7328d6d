// A log of what the ranks send: sizes, times and bandwidths of collectives and messages, DeepSpeed's
// comms_logger. The config section of that name turns it on; programs without an engine call start().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/log/bandwidth.h"

namespace deepspeed::comm {

struct CommsLoggerOptions {
  bool verbose = false;  // a line in the log for each call
  bool prof_all = true;  // watch all operations
  bool debug = false;    // tell apart what calls are about: "all_gather | parameter 'h.0.weight'"
  std::vector<std::string> prof_ops = {};  // those that are watched otherwise
  int ranks_per_node = 1;                  // consecutive ranks: World::ranks_per_node()
};

/// The calls of one operation over tensors of one size.
struct CommsRecord {
  std::vector<double> milliseconds;  // of each call, from its start to the end of the wait for it
  std::vector<Bandwidth> bandwidths;

  /// The mean without the smallest and the largest tenth.
  double mean_milliseconds() const;
  Bandwidth mean_bandwidth() const;
};

/// Listens to all groups of the process. Any thread may call.
class DEEPSPEED_API CommsLogger {
 public:
  using Records = std::map<std::string, std::map<int64_t, CommsRecord>>;  // [operation][bytes]

  /// Returns that of the process.
  static CommsLogger& instance();

  /// Begins to listen, or goes on with other options; what was logged stays. Throws UsageError for operations
  /// that do not exist.
  void start(const CommsLoggerOptions& options = {});
  /// Hears nothing more.
  void stop();
  bool is_on() const;
  // As DeepSpeed's: watch all operations, or no longer; watch these, or no longer. start() comes first.
  void start_profiling_comms();
  void stop_profiling_comms();
  void start_profiling_op(const std::vector<std::string>& operations);
  void stop_profiling_op(const std::vector<std::string>& operations);
  /// Forgets what was logged.
  void reset();

  Records records() const;
  /// What this rank received of others (received_bytes()), over all calls.
  LinkBytes link_bytes() const;
  /// Returns the table of DeepSpeed's log_summary(): operation, size, count, total and mean latency, and
  /// bandwidths, and below it the bytes within and between nodes. stragglers_among: a group whose ranks all
  /// call it, for how long this one waited for others beside each row, which is what it took beyond the
  /// fastest rank's time of the same call; where the ranks made different calls, a line says so.
  std::string summary(const ProcessGroup& stragglers_among = {}) const;

 private:
  CommsLogger();
  ~CommsLogger();
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes bytes in powers of 1024, "678.86 MB".
DEEPSPEED_API std::string byte_size_text(int64_t bytes);

}  // namespace deepspeed::comm
