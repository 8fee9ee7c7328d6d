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

/// Builds the layers: an embedding of words, blocks, and a projection to the words. In a tied run the
/// projection shares the embedding's weight. Each call builds new layers with the same weights.
std::vector<LayerSpec> small_layers(const PipelineRun& run);
/// Returns the cross entropy of outputs (B, T, words) and labels (B, T).
at::Tensor small_loss(const at::Tensor& logits, const at::Tensor& labels);
/// Returns the micro batches of a step for one data-parallel rank.
std::vector<pipe::MicroBatch> small_batches(const PipelineRun& run, int step, int data_rank);
Json small_config(const PipelineRun& run);
std::shared_ptr<PipelineModule> small_module(const PipelineRun& run);

/// Trains from `first_step` on with a new or loaded engine. Returns the losses.
std::vector<double> train_on(PipelineEngine& engine, const PipelineRun& run, int first_step, int last_step);
/// Returns the steps' mean losses on a pipeline over all ranks of the world.
std::vector<double> train_pipeline(const PipelineRun& run);
/// Returns the losses of an engine with all layers, on this rank only. It reads the data of `data_ranks`
/// ranks in turn.
std::vector<double> train_whole(const PipelineRun& run, int data_ranks);

}  // namespace deepspeed::testing
