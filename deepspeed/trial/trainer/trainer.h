// The Trainer runs a trial: training, validation and checkpoints by periods, as Determined's Trainer does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/trial/trainer/context.h"
#include "deepspeed/trial/trainer/trial.h"

namespace deepspeed::trial {

/// Counts batches or epochs. An epoch is what one pass over the training loader trains.
struct DEEPSPEED_API TrainUnit {
  int64_t value = 0;
  bool epochs = false;

  /// Returns whether a period of this length ends with the `count`-th.
  bool ends_at(int64_t count) const { return value > 0 && count % value == 0; }
};
inline TrainUnit Batch(int64_t value) { return {value, false}; }
inline TrainUnit Epoch(int64_t value) { return {value, true}; }

/// Receives what a search needs to know of a trial, on rank 0.
class DEEPSPEED_API Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void report_training_metrics(int64_t /*batches*/, const Json& /*metrics*/) {}
  virtual void report_validation_metrics(int64_t /*batches*/, const Json& /*metrics*/) {}
  virtual void report_checkpoint(int64_t /*batches*/, const std::string& /*name*/) {}
  virtual void report_progress(double /*share*/) {}
  /// Returns whether the trial ends now, with a checkpoint. Asked on all ranks' behalf.
  virtual bool should_preempt() { return false; }
};

/// Holds fit()'s arguments, with Determined's names. Without a period nothing happens before the end.
struct FitOptions {
  std::optional<TrainUnit> max_length = {};  ///< required
  std::optional<TrainUnit> checkpoint_period = {};
  std::optional<TrainUnit> validation_period = {};
  TrainUnit reporting_period = Batch(100);
  std::string checkpoint_policy = "best";  ///< after a validation: "best", "all" or "none"
  std::string searcher_metric = {};        ///< decides what is best; without one "best" means "all"
  bool smaller_is_better = true;
  std::string latest_checkpoint = {};  ///< a name in checkpoint_dir, or a folder: goes on from there
  bool step_zero_validation = false;
  bool exact_length = false;  ///< end at max_length, not at the end of the workload that reaches it
  bool test_mode = false;     ///< one batch of everything
  std::filesystem::path checkpoint_dir = "checkpoints";
};

class DEEPSPEED_API Trainer {
 public:
  /// Both must outlive the Trainer. reporter: null for a run without a search.
  Trainer(DeepSpeedTrial& trial, DeepSpeedTrialContext& context,
          std::shared_ptr<Reporter> reporter = nullptr);

  /// Runs the trial. Collective. Under a search its length, periods and folders replace those of `options`.
  /// Throws UsageError, with Determined's words, for what the trial does wrong.
  void fit(const FitOptions& options);

  int64_t batches_trained() const { return state_.batches_trained; }
  int64_t epochs_trained() const { return state_.epochs_trained; }

 private:
  enum class Step { kTrain, kValidate, kCheckpoint, kReport };
  struct Boundary {
    Step step;
    TrainUnit unit;
    bool reached = false;
  };
  struct State {
    int64_t batches_trained = 0;
    int64_t epochs_trained = 0;
    int64_t last_checkpoint = -1;
    int64_t last_validation = -1;
    std::optional<double> best_validation;
  };

  /// Returns the options with those that a search gives, and reports to the search.
  FitOptions options_of_search(FitOptions options);
  void each(const std::function<void(Callback&)>& call);
  void set_data_loaders(int64_t first_batch);
  void run(const FitOptions& options);
  void train(const FitOptions& options);
  std::vector<Json> train_workload(const FitOptions& options, std::vector<Boundary>& boundaries);
  std::vector<Json> train_batch(int64_t epoch_idx, int64_t batch_idx);
  void end_workload(const std::vector<Json>& batches);
  void validate(const FitOptions& options);
  Json evaluate(const FitOptions& options);
  bool is_best(const FitOptions& options, const Json& metrics);
  void checkpoint(const FitOptions& options);
  void load(const std::filesystem::path& folder);
  bool stops_now();
  int64_t left_of(const TrainUnit& length) const;
  /// Returns rank 0's value on all ranks.
  Json from_chief(Json value) const;

  DeepSpeedTrial& trial_;
  DeepSpeedTrialContext& context_;
  std::shared_ptr<Reporter> reporter_;
  std::map<std::string, std::shared_ptr<Callback>> callbacks_;
  State state_;
  DataIterator training_data_;
  std::shared_ptr<DataLoader> validation_loader_;
  int64_t epoch_length_ = 0;
  int64_t num_validation_batches_ = 0;
};

}  // namespace deepspeed::trial
