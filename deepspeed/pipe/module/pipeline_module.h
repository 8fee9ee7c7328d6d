// A model as a list of layers. A rank builds only those of its stage.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/pipe/module/layer.h"
#include "deepspeed/pipe/module/layer_spec.h"
#include "deepspeed/pipe/module/module_options.h"
#include "deepspeed/pipe/module/partition_layers.h"
#include "deepspeed/pipe/topology/parallel_ranks.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::pipe {

/// Describes a weight of a tied module on this stage.
struct TiedWeight {
  std::string key;   // of the module
  std::string name;  // in the model: "tied_modules.embed.weight"
  at::Tensor tensor;
  std::vector<int> stages;  // ascending; two or more
};

/// Holds the model of a PipelineEngine. All layers are described; those of this rank's stage are built.
/// Parameters of layer i are named "i.name", those of a tied layer "tied_modules.KEY.name". All ranks
/// construct it with the same arguments.
class DEEPSPEED_API PipelineModule {
 public:
  /// Divides the layers among stages and builds this rank's. Collective. Throws UsageError naming the
  /// argument if neither num_stages nor topology is given, if the stages do not divide the ranks, if there
  /// are more stages than layers, if only one layer has a tied key, or if tied layers have different classes.
  PipelineModule(std::vector<LayerSpec> layers, PipelineModuleOptions options);
  PipelineModule(const torch::nn::Sequential& layers, PipelineModuleOptions options);
  PipelineModule(const PipelineModule&) = delete;
  PipelineModule& operator=(const PipelineModule&) = delete;

  int num_layers() const { return int(class_names_.size()); }
  int num_stages() const { return ranks_.pipe_parallel_size(); }
  int stage_id() const { return ranks_.stage_id(); }
  int model_chunks() const { return options_.model_chunks; }
  const ProcessTopology& topology() const { return ranks_.topology(); }
  /// Returns this rank's position among stages, data-parallel ranks and slices.
  const ParallelRanks& grid() const { return ranks_; }
  const comm::World& world() const { return options_.world; }
  /// Returns the boundaries of parts, as numbers of layers. Part p is chunk p / num_stages() of stage p %
  /// num_stages().
  const Parts& parts() const { return parts_; }
  const PipelineModuleOptions& options() const { return options_; }
  /// Returns the number of the stage that has this layer.
  int stage_of(int layer) const;
  /// Describes a layer for messages: "layer 3 (torch::nn::LinearImpl)".
  std::string describe_layer(int layer) const;

  /// Runs this stage's layers of a chunk. Errors from a layer name the layer, its stage and its input shapes;
  /// see rethrow_with_place() for their class.
  Tensors forward(const Tensors& inputs, int chunk = 0);
  template <class... Inputs>
  Tensors operator()(const Inputs&... inputs) {
    return forward(Tensors{inputs...});
  }
  /// Returns the loss of a micro batch. Throws UsageError if there is no loss_fn and the outputs are not a
  /// scalar. Errors from loss_fn name it as their place.
  at::Tensor loss(const Tensors& outputs, const Tensors& labels);
  /// Returns the sums of the additional losses since the last call; empty without any.
  std::map<std::string, at::Tensor> take_additional_losses() { return std::exchange(additional_losses_, {}); }

  NamedTensors named_parameters() const { return model_.parameters; }
  NamedTensors named_buffers() const { return model_.buffers; }
  std::vector<at::Tensor> parameters() const;
  void train(bool mode = true) { model_.set_training(mode); }
  void eval() { train(false); }

  /// Returns whether the chunk has a trained parameter. If a front end runs several chunks, this is unknown
  /// and the result is false.
  bool is_trained(int chunk) const;
  /// Returns this stage's layers in the order of the model.
  const std::vector<StageLayer>& layers() const { return layers_; }
  const std::vector<TiedWeight>& tied_weights() const { return tied_weights_; }
  /// Returns the prefix of this rank's file names, as in DeepSpeed: "DIRECTORY/TAG/module-pipe_00".
  std::string ckpt_prefix(const std::string& checkpoints_path, const std::string& tag) const;
  /// Returns the weight file of this stage's nth layer, in a tag's folder:
  /// "DIRECTORY/layer_03-model_states.pt".
  std::string ckpt_layer_path(const std::string& ckpt_dir, int local_layer_idx) const;
  /// Writes a file to `save_dir` for each layer of this stage that has weights. Only the first data-parallel
  /// rank writes. load_state_dir() reads the files, also those that other stages wrote.
  void save_state_dict(const std::string& save_dir, bool exclude_frozen_params = false) const;
  /// Loads save_state_dict()'s files. Throws CheckpointError if a file is missing or sizes differ. If strict,
  /// it also throws if a name is missing.
  void load_state_dir(const std::string& load_dir, bool strict = true);
  /// Returns this stage's model in the form that engines take.
  const EngineModel& model() const { return model_; }
  /// Sets how many layers' activations are recomputed together; 0: none.
  void set_activation_checkpoint_interval(int interval) {
    options_.activation_checkpoint_interval = interval;
  }

 private:
  Parts partition() const;
  void find_ties();
  std::vector<LayerCost> costs() const;
  std::vector<double> measure_layers() const;
  void build_layers();
  void build_layer(int index);
  Layer built(int index) const;
  /// Names the place of an error in a layer: forward or, by construction_of(), constructor.
  std::string place_of(int layer) const;
  std::string construction_of(int layer) const;
  void describe_files();
  void add_file_of(const StageLayer& layer);
  std::string slice() const;
  void find_tied_weights();
  void find_weights_of_other_slices();
  void seed_for(int64_t number) const;
  Tensors run_layer(size_t position, const Tensors& inputs);
  Tensors run_layers(size_t first, size_t last, const Tensors& inputs);
  bool is_checkpointable(size_t first, size_t last) const;
  std::string name_of_layers(size_t first, size_t last) const;

  PipelineModuleOptions options_;
  std::vector<LayerSpec> specs_;          // until the stage is built: they may hold modules of other stages
  std::vector<std::string> class_names_;  // [layer]
  ParallelRanks ranks_;
  Parts parts_;
  std::vector<StageLayer> layers_;
  std::vector<std::pair<size_t, size_t>> chunks_;  // [chunk]: range in layers_, end exclusive
  struct TiedLayers {
    std::vector<int> layers;
    std::set<std::string> weight_attrs;
    int stored_as = -1;  // the layer whose file holds the module in checkpoints
  };
  std::map<std::string, TiedLayers> ties_;          // of the model, by key
  std::map<std::string, TiedModule> tied_modules_;  // of this stage
  std::vector<TiedWeight> tied_weights_;
  EngineModel model_;
  std::map<std::string, at::Tensor> additional_losses_;
  std::vector<int64_t> num_forwards_;  // [chunk]: forwards so far, one per micro batch in any schedule
  int64_t micro_offset_ = 0;           // number of the chunk's forward, from which seed_layers makes seeds
};

}  // namespace deepspeed::pipe

namespace deepspeed {
using pipe::LayerSpec;
using pipe::PipelineModule;
using pipe::PipelineModuleOptions;
using pipe::TiedLayerSpec;
}  // namespace deepspeed
