// The config classes of DeepSpeed's manual of version 0.3: TrainingConfig with batch and fp16. What they say
// becomes a JSON config with to_ds_config.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/base/export.h"
#include "deepspeed/config/table/key_value_config.h"

namespace deepspeed::config {

/// The batch sizes: train_batch_size = micro_batch_size * gradient_accumulation_steps * data-parallel ranks.
/// Any two of the three give the third; train_batch_size or micro_batch_size alone gives the other two.
class DEEPSPEED_API BatchConfig : public ConfigOf<BatchConfig> {
 public:
  std::optional<int64_t> train_batch_size;
  std::optional<int64_t> train_micro_batch_size_per_gpu;  // also under the key micro_batch_size
  std::optional<int64_t> gradient_accumulation_steps;

  BatchConfig(Pairs pairs = {}) { update(pairs); }
  static const Members<BatchConfig>& members();

 protected:
  void resolve_own(int64_t world_size) override;
  void check_own(int64_t world_size) const override;
};

class DEEPSPEED_API FP16Config : public ConfigOf<FP16Config> {
 public:
  bool enabled = false;
  double clip = 1.0;  // the greatest norm of the gradients; 0: any

  FP16Config(Pairs pairs = {}) { update(pairs); }
  static const Members<FP16Config>& members();

 protected:
  void check_own(int64_t world_size) const override;
};

class DEEPSPEED_API TrainingConfig : public ConfigOf<TrainingConfig> {
 public:
  BatchConfig batch;
  FP16Config fp16;

  TrainingConfig(Pairs pairs = {}) { update(pairs); }
  static const Members<TrainingConfig>& members();

  /// Writes a JSON config for initialize(): batch sizes, fp16.enabled and gradient_clipping.
  Json to_ds_config() const;
};

}  // namespace deepspeed::config
