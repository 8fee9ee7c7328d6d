// A trial is a training that the Trainer drives: the C++ form of Determined's DeepSpeedTrial.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/trial/trainer/context.h"
#include "deepspeed/trial/trainer/data.h"
#include "deepspeed/trial/trainer/metrics.h"

namespace deepspeed::trial {

/// Is told about a trial's progress. Its functions do nothing by default.
class DEEPSPEED_API Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_trial_startup(int64_t /*first_batch_idx*/, const std::string& /*checkpoint*/) {}
  virtual void on_trial_shutdown() {}
  virtual void on_training_start() {}
  virtual void on_training_epoch_start(int64_t /*epoch_idx*/) {}
  virtual void on_training_epoch_end(int64_t /*epoch_idx*/) {}
  virtual void on_training_workload_end(const Json& /*avg_metrics*/, const Json& /*batch_metrics*/) {}
  virtual void on_validation_start() {}
  virtual void on_validation_epoch_start() {}
  virtual void on_validation_epoch_end(const Json& /*batch_metrics*/) {}
  virtual void on_validation_end(const Json& /*metrics*/) {}
  virtual void on_checkpoint_save_start(Json& /*state*/) {}
  virtual void on_checkpoint_write_end(const std::filesystem::path& /*folder*/) {}
  virtual void on_checkpoint_upload_end(const std::string& /*name*/) {}
  virtual void on_checkpoint_load_start(const Json& /*state*/) {}
  /// Saves and restores the callback's own state.
  virtual Json state_dict() { return Json::object(); }
  virtual void load_state_dict(const Json& /*state*/) {}
};

/// Is the base of trials. The constructor makes engines and wraps them (DeepSpeedTrialContext).
class DEEPSPEED_API DeepSpeedTrial {
 public:
  virtual ~DeepSpeedTrial() = default;

  /// Trains one micro batch, or a pipeline's whole batch, and returns metrics. `data` gives micro batches.
  virtual Metrics train_batch(const DataIterator& data, int64_t epoch_idx, int64_t batch_idx) = 0;
  virtual std::shared_ptr<DataLoader> build_training_data_loader() = 0;
  virtual std::shared_ptr<DataLoader> build_validation_data_loader() = 0;
  /// Evaluates one batch and returns metrics. A pipeline takes as many micro batches as a batch has.
  virtual Metrics evaluate_batch(const DataIterator& data, int64_t batch_idx);
  /// Evaluates everything at once on rank 0, if evaluate_batch() is not there.
  virtual Metrics evaluate_full_dataset(const DataIterator& data);
  virtual bool evaluates_full_dataset() const { return false; }
  virtual Reducers evaluation_reducer() { return Reducer::kAvg; }
  virtual std::map<std::string, std::shared_ptr<Callback>> build_callbacks() { return {}; }
  /// Saves the engines under the tags model0, model1, ...
  virtual void save(DeepSpeedTrialContext& context, const std::filesystem::path& folder);
  virtual void load(DeepSpeedTrialContext& context, const std::filesystem::path& folder);
};

}  // namespace deepspeed::trial
