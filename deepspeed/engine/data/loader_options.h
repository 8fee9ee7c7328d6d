// Options of a data loader: the arguments of deepspeed_io() under DeepSpeed's names, and what follows from
// them for one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace deepspeed {

struct DataLoaderOptions {
  int64_t batch_size = 1;  // samples of this rank: the micro batch
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  bool drop_last = false;  // drop the last batch of an epoch if it is smaller
  uint64_t seed = 0;
  /// Pins the memory of batches made by stack_examples(). Batches of the program's own collate function stay
  /// as they are.
  bool pin_memory = false;
  at::Device device = at::kCPU;  // device of the returned batches
  /// Returns the samples of this rank in an epoch, in order. Every rank must return equally many. Replaces
  /// the order that follows from seed, shuffle and ranks.
  std::function<std::vector<int64_t>(int64_t epoch)> data_sampler = nullptr;
  /// Sets the number of threads that make batches ahead of use. With 0 each batch is made when it is
  /// requested. With several, the threads call the data set and the collate function at once. Batches and
  /// their order do not change.
  int num_local_io_workers = 0;
};

struct DeepSpeedIoOptions {
  std::optional<int64_t> batch_size = {};  // of this rank; default: the engine's micro batch
  std::string route = "train";             // "train": shuffled; "eval" and "predict": in order
  bool pin_memory = true;  // used if the model is on a CUDA device, to which batches are moved
  /// Returns the samples of this rank in an epoch, in order. Every rank must return equally many.
  std::function<std::vector<int64_t>(int64_t epoch)> data_sampler = nullptr;
  int num_local_io_workers = 0;  // threads that make batches ahead of use
};

}  // namespace deepspeed
