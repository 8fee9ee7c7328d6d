// Logs the sizes, times and bandwidths of collectives and messages, like DeepSpeed's comms_logger. The config
// section of that name turns it on; programs without an engine call start().
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
  bool verbose = false;  // write a log line for each call
  bool prof_all = true;  // watch all operations
  bool debug = false;    // distinguish subjects of calls: "all_gather | parameter 'h.0.weight'"
  std::vector<std::string> prof_ops = {};  // the operations to watch if not prof_all
  int ranks_per_node = 1;                  // consecutive ranks: World::ranks_per_node()
};

/// Holds the calls of one operation over tensors of one size.
struct CommsRecord {
  std::vector<double> milliseconds;  // of each call, from its start until the program has waited for it
  std::vector<Bandwidth> bandwidths;

  /// Returns the mean without the smallest and largest tenth; 0 without calls.
  double mean_milliseconds() const;
  Bandwidth mean_bandwidth() const;
};

/// Records the calls of all groups of the process. Thread-safe.
class DEEPSPEED_API CommsLogger {
 public:
  using Records = std::map<std::string, std::map<int64_t, CommsRecord>>;  // [operation][bytes]

  /// Returns the logger of the process.
  static CommsLogger& instance();

  /// Starts logging, or continues with other options. Earlier records stay. Throws UsageError for unknown
  /// operations.
  void start(const CommsLoggerOptions& options = {});
  /// Stops logging. The records stay.
  void stop();
  bool is_on() const;
  // These are named as in DeepSpeed: they start or stop watching all or certain operations. start() must come
  // first.
  void start_profiling_comms();
  void stop_profiling_comms();
  void start_profiling_op(const std::vector<std::string>& operations);
  void stop_profiling_op(const std::vector<std::string>& operations);
  /// Deletes all records.
  void reset();

  Records records() const;
  /// Returns what this rank received from others over all calls (received_bytes()).
  LinkBytes link_bytes() const;
  /// Returns the table of DeepSpeed's log_summary(): operation, size, count, total and mean latency,
  /// bandwidths. Below it are the bytes within and between nodes. If `stragglers_among` is given, all ranks
  /// of that group must call this. Each row then tells how long this rank waited for others: its time minus
  /// that of the fastest rank for the same calls. If the ranks made different calls, a line says so.
  std::string summary(const ProcessGroup& stragglers_among = {}) const;

 private:
  CommsLogger();
  ~CommsLogger();
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Formats bytes in powers of 1024: "678.86 MB".
DEEPSPEED_API std::string byte_size_text(int64_t bytes);

}  // namespace deepspeed::comm
