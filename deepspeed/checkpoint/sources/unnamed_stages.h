// The optimizer states of DeepSpeed's pipelines at ZeRO stage 0, which have no names, become those of named
// parameters, so that any number of stages can take them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "deepspeed/checkpoint/sources/optimizer_files.h"
#include "deepspeed/checkpoint/tag/manifest.h"

namespace deepspeed::checkpoint {

/// Says where a pipeline's checkpoints have the weights of a layer.
struct PipelineLayer {
  std::string prefix;    // of its parameters' names in the model: "3", "tied_modules.embed"
  bool is_tied = false;  // layers of one prefix share a module
  int stored_as = 0;     // the layer whose file has them
};

/// Opens the optimizers of all stages that saved a tag. Which layers a stage had follows from the sizes of
/// its states and of the weights in the files of `layers`, those of the whole pipeline. Throws MisfitError,
/// which names the way out, where no cut of the layers fits, where several do, and for several parameter
/// groups; NotSupportedError where ranks have cut a layer.
OptimizerFiles open_unnamed_stages(const std::filesystem::path& dir, const std::string& tag,
                                   const TagArchives& archives, const std::vector<PipelineLayer>& layers);

}  // namespace deepspeed::checkpoint
