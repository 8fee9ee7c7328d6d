#include "deepspeed/accelerate/accelerator/tracking.h"

#include <filesystem>
#include <fstream>

#include "deepspeed/base/error.h"
#include "deepspeed/monitor/csv_monitor.h"

namespace deepspeed::accelerate {
namespace {

class CsvTracker : public GeneralTracker {
 public:
  explicit CsvTracker(const std::filesystem::path& folder) : monitor_(folder) {}

  void store_init_configuration(const Json& values) override {
    std::ofstream out(monitor_.folder() / "config.json");
    out << values.dump(2) << "\n";
    if (!out.flush()) raise<IoError>("cannot write ", (monitor_.folder() / "config.json").string());
  }
  void log(const std::map<std::string, double>& values, std::optional<int64_t> step) override {
    std::vector<monitor::Event> events;
    for (const auto& [name, value] : values) events.push_back({name, value, step.value_or(next_step_)});
    next_step_ = step.value_or(next_step_) + 1;
    monitor_.write_events(events);
  }

 private:
  monitor::CsvMonitor monitor_;
  int64_t next_step_ = 0;
};

}  // namespace

std::shared_ptr<GeneralTracker> make_tracker(const std::string& name, const std::string& project_name,
                                             const std::string& logging_dir) {
  if (name == "csv") {
    if (logging_dir.empty())
      raise<UsageError>(
          "Logging with `csv` requires a `logging_dir` to be passed in: give the Accelerator a project_dir");
    return std::make_shared<CsvTracker>(std::filesystem::path(logging_dir) / project_name);
  }
  for (const char* other : {"all", "tensorboard", "wandb", "comet_ml", "mlflow", "clearml", "dvclive", "aim",
                            "swanlab", "trackio"}) {
    if (name == other)
      raise<NotSupportedError>("log_with: ", name,
                               " is not there in C++: use csv, or add_tracker() with a tracker of your own");
  }
  raise<UsageError>("log_with: no tracker has the name '", name, "', expected csv");
}

}  // namespace deepspeed::accelerate
