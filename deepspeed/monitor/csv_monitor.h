// Writes scalars to CSV files, one per name: DeepSpeed's csv_monitor.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/monitor/monitor.h"

namespace deepspeed::monitor {

/// Writes one file per name: "Train/Samples/lr" goes to `<folder>/Train_Samples_lr.csv`, whose first line is
/// "step,lr". A file of an earlier run is continued.
class DEEPSPEED_API CsvMonitor : public Monitor {
 public:
  /// Makes the folder. Throws IoError if it cannot.
  explicit CsvMonitor(std::filesystem::path folder);
  /// Appends the events to their files. Throws IoError, naming the file.
  void write_events(const std::vector<Event>& events) override;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace deepspeed::monitor
