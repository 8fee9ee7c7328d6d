// Assigns the optimizer states of DeepSpeed's pipelines at ZeRO stage 0, which have no names, to named
// parameters. Any number of stages can then load them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "deepspeed/checkpoint/sources/optimizer_files.h"
#include "deepspeed/checkpoint/tag/manifest.h"

namespace deepspeed::checkpoint {

/// Tells where a pipeline's checkpoints keep the weights of a layer.
struct PipelineLayer {
  std::string prefix;    // of its parameters' names in the model: "3", "tied_modules.embed"
  bool is_tied = false;  // layers with one prefix share a module
  int stored_as = 0;     // the layer whose file has the weights
};

/// Opens the optimizers of all stages that saved a tag. The sizes of a stage's states and of the weights in
/// the files of `layers` tell which layers the stage had. `layers` covers the whole pipeline. Throws
/// MisfitError, naming the way out, if no cut or several cuts of the layers fit, or if there are several
/// parameter groups. Throws NotSupportedError if a layer is split over ranks.
OptimizerFiles open_unnamed_stages(const std::filesystem::path& dir, const std::string& tag,
                                   const TagArchives& archives, const std::vector<PipelineLayer>& layers);

}  // namespace deepspeed::checkpoint
