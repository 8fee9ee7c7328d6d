// A data loader is made with these: arguments of deepspeed_io(), under DeepSpeed's names, and what follows
// from them for one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace deepspeed {

struct DataLoaderOptions {
  int64_t batch_size = 1;  // of this rank: the micro batch
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  bool drop_last = false;  // drop the last batch of an epoch where it is smaller
  uint64_t seed = 0;
  /// Pins the memory of batches that stack_examples() made; those of a collate function of the program's are
  /// left as they are.
  bool pin_memory = false;
  at::Device device = at::kCPU;  // where they are handed out
  /// Gives the samples of this rank in an epoch, in their order; as many on every rank. Replaces the order
  /// that follows from seed, shuffle and ranks.
  std::function<std::vector<int64_t>(int64_t epoch)> data_sampler = nullptr;
  /// Counts the threads that make batches ahead of their use; 0: each is made when it is asked for. Several
  /// threads call the data set and the collate function at a time then. The batches and their order are the
  /// same.
  int num_local_io_workers = 0;
};

struct DeepSpeedIoOptions {
  std::optional<int64_t> batch_size = {};  // of this rank; default: the engine's micro batch
  std::string route = "train";             // "train": shuffled; "eval" and "predict": in order
  bool pin_memory = true;  // where the model lies on a CUDA device, to which batches are moved
  /// Gives the samples of this rank in an epoch, in order; as many on every rank.
  std::function<std::vector<int64_t>(int64_t epoch)> data_sampler = nullptr;
  int num_local_io_workers = 0;  // threads that make batches ahead of their use
};

}  // namespace deepspeed
