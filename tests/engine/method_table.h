// Tables of the engine's methods: a row names one and checks it on an engine of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/make_engine.h"

namespace deepspeed::testing {

using TestEngine = DeepSpeedEngine<OddNet>;

struct MethodRow {
  std::string method;
  std::function<void(TestEngine& engine)> check;
};

/// Other values than the defaults wherever a key has an effect already.
inline const Json kMethodsConfig = Json::parse(R"({
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 2,
  "steps_per_print": 50,
  "dataloader_drop_last": true,
  "gradient_clipping": 0.5,
  "prescale_gradients": true,
  "communication_data_type": "fp32",
  "zero_allow_untested_optimizer": true,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.8, 0.95]}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
  "checkpoint": {"tag_validation": "Fail"},
  "zero_optimization": {
    "stage": 1, "reduce_scatter": false, "overlap_comm": true, "reduce_bucket_size": 1000,
    "allgather_partitions": false, "allgather_bucket_size": 2000, "contiguous_gradients": false,
    "round_robin_gradients": true, "ignore_unused_parameters": true, "use_multi_rank_bucket_allreduce": false
  }
})");

inline void check_each(const std::vector<MethodRow>& table) {
  for (const MethodRow& row : table) {
    SCOPED_TRACE(row.method);
    const auto engine = make_engine(kMethodsConfig);
    EXPECT_NO_THROW(row.check(*engine));
  }
}

}  // namespace deepspeed::testing
