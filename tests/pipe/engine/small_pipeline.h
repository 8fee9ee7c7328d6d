// A small model as a list of layers, and its training with and without a pipeline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "deepspeed/deepspeed.h"
#include "deepspeed/pipe.h"

namespace deepspeed::testing {

struct PipelineRun {
  int num_stages = 2;
  int model_chunks = 1;
  std::string schedule = "1f1b";
  int micro_batches = 4;
  int steps = 3;
  int zero_stage = 0;
  std::string precision = "fp32";  // "bf16", "fp16", "autocast"
  double clipping = 0.0;
  bool is_tied = false;
  int checkpoint_interval = 0;
  Json optimizer = {{"type", "Adam"}, {"params", {{"lr", 0.01}}}};
  std::string partition_method = "uniform";
};

/// The layers: an embedding of words, blocks, and a projection to the words, which shares the embedding's
/// weight where the run is tied. Built anew, with the same weights each time.
std::vector<LayerSpec> small_layers(const PipelineRun& run);
/// Cross entropy of outputs (B, T, words) and labels (B, T).
at::Tensor small_loss(const at::Tensor& logits, const at::Tensor& labels);
/// The micro batches of a step for one data-parallel rank.
std::vector<pipe::MicroBatch> small_batches(const PipelineRun& run, int step, int data_rank);
Json small_config(const PipelineRun& run);
std::shared_ptr<PipelineModule> small_module(const PipelineRun& run);

/// Trains on from a step, where the engine was loaded or is new.
std::vector<double> train_on(PipelineEngine& engine, const PipelineRun& run, int first_step, int last_step);
/// The mean losses of the steps on a pipeline over all ranks of the world.
std::vector<double> train_pipeline(const PipelineRun& run);
/// Those of an engine that holds all layers, on `data_ranks` ranks' data one after the other: this rank
/// alone.
std::vector<double> train_whole(const PipelineRun& run, int data_ranks);

}  // namespace deepspeed::testing
