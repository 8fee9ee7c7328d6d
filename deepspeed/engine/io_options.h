// Arguments of deepspeed_io(), DeepSpeed's names.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace deepspeed {

class Engine;
struct DataLoaderOptions;

struct DeepSpeedIoOptions {
  std::optional<int64_t> batch_size = {};  // of this rank; default: the engine's micro batch
  std::string route = "train";             // "train": shuffled; "eval" and "predict": in order
  bool pin_memory = true;  // where the model lies on a CUDA device, to which batches are moved
  /// The samples of this rank in an epoch, in order; as many on every rank.
  std::function<std::vector<int64_t>(int64_t epoch)> data_sampler = nullptr;
  int num_local_io_workers = 0;  // threads that make batches ahead of their use
};

/// With the engine's ranks, seed and dataloader_drop_last. Throws UsageError for an unknown route.
DataLoaderOptions loader_options(const Engine& engine, const DeepSpeedIoOptions& options);

}  // namespace deepspeed
