#include "deepspeed/engine/data/loader_options.h"

#include "deepspeed/base/error.h"
#include "deepspeed/engine/training_engine.h"

namespace deepspeed {

DataLoaderOptions loader_options(const TrainingEngine& engine, const DeepSpeedIoOptions& options) {
  if (options.route != "train" && options.route != "eval" && options.route != "predict") {
    raise<UsageError>("deepspeed_io(): route '", options.route,
                      "', expected \"train\", \"eval\" or \"predict\"");
  }
  DataLoaderOptions result;
  result.batch_size = options.batch_size.value_or(engine.config().train_micro_batch_size_per_gpu);
  result.rank = engine.get_data_parallel_rank();
  result.world_size = engine.dp_world_size();
  result.shuffle = options.route == "train";
  result.drop_last = engine.config().dataloader_drop_last;
  result.seed = engine.seed();
  result.pin_memory = options.pin_memory && engine.device().is_cuda();
  result.device = engine.device();
  result.data_sampler = options.data_sampler;
  result.num_local_io_workers = options.num_local_io_workers;
  return result;
}

}  // namespace deepspeed
