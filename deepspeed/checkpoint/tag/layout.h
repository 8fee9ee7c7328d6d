// Defines all names and paths of checkpoint files; no other file does. They are those of DeepSpeed.
//
//   <dir>/latest                                              tag of the newest checkpoint
//   <dir>/zero_to_fp32.py                                     calls the program of that name
//   <dir>/<tag>/mp_rank_00_model_states.pt                    at stages 0, 1 and 2
//   <dir>/<tag>/zero_pp_rank_D_mp_rank_00_model_states.pt     at stage 3, one per rank
//   <dir>/<tag>/[bf16_]zero_pp_rank_D_mp_rank_00_optim_states.pt
//   <dir>/<tag>/rng_states_rank_D_mp_rank_00.pt               ours; DeepSpeed ignores it
//   <dir>/<tag>/layer_LL-model_states.pt                      of a pipeline, one per layer
//
// Each model-parallel rank has its own files, with its number after "mp_rank_". In a pipeline these ranks are
// the stages, whose model files hold no weights.
//
// A universal checkpoint stores the optimizer by parameter:
//   <dir>/latest_universal
//   <dir>/<tag>/mp_rank_00_model_states.pt
//   <dir>/<tag>/zero/optimizer_state.pt                       common to all parameters
//   <dir>/<tag>/zero/<parameter>/fp32.pt, exp_avg.pt, ..., step.pt
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepspeed::checkpoint {

std::filesystem::path model_states_path(const std::filesystem::path& dir, const std::string& tag,
                                        int mp_rank = 0);
/// Returns the path of a rank's model file at stage 3.
std::filesystem::path sharded_model_states_path(const std::filesystem::path& dir, const std::string& tag,
                                                int dp_rank, int mp_rank = 0);
/// Returns the path of a rank's optimizer file. `bf16` tells that training ran in bf16, which DeepSpeed marks
/// in the name.
std::filesystem::path optim_states_path(const std::filesystem::path& dir, const std::string& tag, int dp_rank,
                                        int mp_rank = 0, bool bf16 = false);
std::filesystem::path rng_states_path(const std::filesystem::path& dir, const std::string& tag, int dp_rank,
                                      int mp_rank = 0);

/// Returns the path of the weights of a pipeline layer. `slice` names a rank's part, "model_00", if layers
/// are split over ranks.
std::filesystem::path layer_states_path(const std::filesystem::path& dir, const std::string& tag, int layer,
                                        const std::string& slice = "");

/// Returns <folder of a tag>/manifest.json, a file that DeepSpeed does not have.
std::filesystem::path manifest_path(const std::filesystem::path& tag_folder);

/// Returns whether a file in a tag's folder is a model, optimizer or random-stream file.
bool is_checkpoint_file(const std::string& name);
/// Returns whether a file in a tag's folder has optimizer states, including universal ones.
bool is_optimizer_file(const std::string& name);
/// Returns whether a file in a tag's folder has random streams.
bool is_rng_file(const std::string& name);

/// Returns the default tag of a save: "global_step{global_steps}".
std::string default_tag(int64_t global_steps);
bool is_default_tag(const std::string& tag);

std::filesystem::path latest_path(const std::filesystem::path& dir);
/// Returns the tag in `latest`, or nothing if the file is missing. Throws CheckpointError if it is empty, a
/// folder or not text, and IoError if it cannot be read.
std::optional<std::string> read_latest(const std::filesystem::path& dir);
/// Replaces a small file next to the tags in one durable step. Other processes do not mistake its temporary
/// file for a leftover.
void write_beside_tags(const std::filesystem::path& file, const std::string& text);
/// Replaces `latest` in one durable step, like write_beside_tags().
void write_latest(const std::filesystem::path& dir, const std::string& tag);

std::filesystem::path zero_to_fp32_script_path(const std::filesystem::path& dir);

std::filesystem::path latest_universal_path(const std::filesystem::path& dir);
/// Returns the tag of the universal checkpoint in `latest_universal`. Throws like read_latest().
std::optional<std::string> read_latest_universal(const std::filesystem::path& dir);
/// Replaces `latest_universal` in one durable step.
void write_latest_universal(const std::filesystem::path& dir, const std::string& tag);

/// Returns <folder of a tag>/zero, the folder of a universal checkpoint's parameters.
std::filesystem::path universal_zero_folder(const std::filesystem::path& tag_folder);
std::filesystem::path universal_optimizer_path(const std::filesystem::path& tag_folder);
/// Returns the path of one state of a parameter. Throws CheckpointError if the parameter's name cannot be a
/// folder name.
std::filesystem::path universal_state_path(const std::filesystem::path& tag_folder,
                                           const std::string& parameter, const std::string& state);
bool is_universal(const std::filesystem::path& tag_folder);
/// Lists a parameter's states with their files, by name. The list is empty for an unknown parameter.
std::vector<std::pair<std::string, std::filesystem::path>> find_universal_states(
    const std::filesystem::path& tag_folder, const std::string& parameter);

struct OptimStatesFile {
  std::filesystem::path path = {};
  int dp_rank = 0;
  int mp_rank = 0;
  bool bf16 = false;
};
/// Lists the optimizer files of a tag, by model-parallel and data-parallel rank. With `mp_rank`, lists only
/// those of that model-parallel rank.
std::vector<OptimStatesFile> find_optim_states(const std::filesystem::path& dir, const std::string& tag,
                                               std::optional<int> mp_rank = {});
/// Lists the model-parallel ranks that have model files in a tag, ascending. Without model parallelism that
/// is only 0.
std::vector<int> find_mp_ranks(const std::filesystem::path& dir, const std::string& tag);
/// Lists the folders in `dir` that have a model file, sorted by name.
std::vector<std::string> find_tags_with_model(const std::filesystem::path& dir);

struct LayerStatesFile {
  std::filesystem::path path = {};
  int layer = 0;
};
/// Lists the files of a pipeline's layers, by layer; empty for other checkpoints. Throws NotSupportedError if
/// a layer is split over ranks.
std::vector<LayerStatesFile> find_layer_states(const std::filesystem::path& dir, const std::string& tag);
/// Returns the highest number of a layer with a file in the tag, whole or sliced. Nothing if there is none.
std::optional<int> last_stored_layer(const std::filesystem::path& dir, const std::string& tag);
/// Lists the random-stream files of a tag's ranks, sorted by name.
std::vector<std::filesystem::path> find_rng_states(const std::filesystem::path& dir, const std::string& tag);
/// Lists the model files of a tag, sorted by name.
std::vector<std::filesystem::path> find_model_states(const std::filesystem::path& dir,
                                                     const std::string& tag);

/// Lists the model file of each data-parallel rank at stage 3; empty for other stages. Throws
/// CheckpointError, naming the file, if one in the sequence is missing.
std::vector<std::filesystem::path> find_sharded_model_states(const std::filesystem::path& dir,
                                                             const std::string& tag, int mp_rank = 0);
struct ModelStatesFile {
  std::filesystem::path path = {};
  int mp_rank = 0;
};
/// Lists the model file of each rank of find_mp_ranks(), or only of `mp_rank`. At stage 3 it is that of the
/// first data-parallel rank. Throws CheckpointError, naming the file, if one is missing. Throws UsageError if
/// `mp_rank` does not exist, or if layers are split over ranks and `mp_rank` is unset.
std::vector<ModelStatesFile> require_model_states(const std::filesystem::path& dir, const std::string& tag,
                                                  std::optional<int> mp_rank = {});
/// Lists the model-parallel ranks of a tag if layers are split over them. Otherwise the list is empty.
std::vector<int> find_slices(const std::filesystem::path& dir, const std::string& tag);
/// Returns the name of a weight file of one model-parallel rank: "mp_rank_01_pytorch_model.bin".
std::string name_of_slice(int mp_rank, const std::string& name);
/// Throws CheckpointError, naming the file, if a rank is missing in `files`. `files` is the result of
/// find_optim_states() for `mp_rank`.
void require_each_rank(const std::vector<OptimStatesFile>& files, const std::filesystem::path& dir,
                       const std::string& tag, int mp_rank = 0);

/// Returns the name of a weight file: "pytorch_model.bin" or "model.safetensors". Shards are named
/// "pytorch_model-00001-of-00003.bin" (`shard` counts from 0).
std::string weights_name(bool safe_serialization, size_t shard = 0, size_t num_shards = 1);
/// Returns the name of the index of shards: "pytorch_model.bin.index.json".
std::string weights_index_name(bool safe_serialization);

}  // namespace deepspeed::checkpoint
