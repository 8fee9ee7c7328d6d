// deepspeed::initialize for a model that is divided into pipeline stages.
#pragma once

#include <memory>
#include <utility>

#include "deepspeed/engine/data/dataloader.h"
#include "deepspeed/pipe/engine/pipeline_engine.h"

namespace deepspeed {

struct NoTrainingDataWasGivenToInitialize;

/// Holds what initialize() returns for a PipelineModule. Use it by name, or as `auto [engine, optimizer,
/// training_dataloader, lr_scheduler] = initialize(...)`.
template <class Loader = NoTrainingDataWasGivenToInitialize>
struct InitializedPipeline {
  std::shared_ptr<PipelineEngine> engine;
  std::shared_ptr<zero::ZeroOptimizer> optimizer;    // null: none requested, evaluation only
  std::shared_ptr<Loader> training_dataloader;       // null without training data
  std::shared_ptr<optim::LrScheduler> lr_scheduler;  // null: none requested
};

namespace initialize_detail {

template <class Model>
struct EngineMaker;

/// Makes an engine for this rank's stage, on all ranks. If training data is given, the engine's train_batch()
/// reads it repeatedly.
template <>
struct EngineMaker<std::shared_ptr<PipelineModule>> {
  static InitializedPipeline<> make(std::shared_ptr<PipelineModule> model, const InitializeOptions& options) {
    auto engine = std::make_shared<PipelineEngine>(std::move(model), options);
    return {engine, engine->optimizer(), nullptr, engine->lr_scheduler()};
  }

  template <class Dataset, class Collate>
  static auto make(std::shared_ptr<PipelineModule> model, Dataset training_data,
                   const InitializeOptions& options, Collate collate_fn) {
    using Loader = DeepSpeedDataLoader<Dataset, Collate>;
    auto engine = std::make_shared<PipelineEngine>(std::move(model), options);
    auto loader =
        std::make_shared<Loader>(std::move(training_data), engine->loader_options({}), std::move(collate_fn));
    engine->track_loader(loader->position());
    engine->set_dataloader(loader);
    return InitializedPipeline<Loader>{engine, engine->optimizer(), std::move(loader),
                                       engine->lr_scheduler()};
  }
};

}  // namespace initialize_detail
}  // namespace deepspeed
