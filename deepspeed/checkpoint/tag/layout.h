// This file spells the names and places of checkpoint files, as DeepSpeed has them; no other does.
//
//   <dir>/latest                                              the tag of the newest checkpoint
//   <dir>/zero_to_fp32.py                                     calls the program of that name
//   <dir>/<tag>/mp_rank_00_model_states.pt                    at stages 0, 1 and 2
//   <dir>/<tag>/zero_pp_rank_D_mp_rank_00_model_states.pt     at stage 3, one a rank
//   <dir>/<tag>/[bf16_]zero_pp_rank_D_mp_rank_00_optim_states.pt
//   <dir>/<tag>/rng_states_rank_D_mp_rank_00.pt               ours; DeepSpeed's patterns pass over it
//   <dir>/<tag>/layer_LL-model_states.pt                      of a pipeline, one a layer
//
// Where ranks share the model out, each place among them has files of its own, with its number behind
// "mp_rank_". Of a pipeline these are the stages; their model files hold no weights.
//
// A universal checkpoint holds the optimizer by parameter:
//   <dir>/latest_universal
//   <dir>/<tag>/mp_rank_00_model_states.pt
//   <dir>/<tag>/zero/optimizer_state.pt                       what all parameters share
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
/// Returns the path of the model file of one rank of stage 3.
std::filesystem::path sharded_model_states_path(const std::filesystem::path& dir, const std::string& tag,
                                                int dp_rank, int mp_rank = 0);
/// Returns the path of the optimizer file of a rank. `bf16`: the training ran in bf16, which DeepSpeed marks
/// in the name.
std::filesystem::path optim_states_path(const std::filesystem::path& dir, const std::string& tag, int dp_rank,
                                        int mp_rank = 0, bool bf16 = false);
std::filesystem::path rng_states_path(const std::filesystem::path& dir, const std::string& tag, int dp_rank,
                                      int mp_rank = 0);

/// Returns the path of the weights of a layer of a pipeline. `slice` names the part of it where ranks cut its
/// layers as well: "model_00".
std::filesystem::path layer_states_path(const std::filesystem::path& dir, const std::string& tag, int layer,
                                        const std::string& slice = "");

/// Returns the path <folder of a tag>/manifest.json, a file of ours.
std::filesystem::path manifest_path(const std::filesystem::path& tag_folder);

/// Says whether a file of a tag's ranks has such a name: of the model, the optimizer or random streams.
bool is_checkpoint_file(const std::string& name);
/// Says whether a file has optimizer states of a rank, by its name inside of the tag's folder; those of a
/// universal checkpoint too.
bool is_optimizer_file(const std::string& name);
/// Says whether a file has the random streams of a rank, by its name.
bool is_rng_file(const std::string& name);

/// Returns the tag that a save gets by default: "global_step{global_steps}".
std::string default_tag(int64_t global_steps);
bool is_default_tag(const std::string& tag);

std::filesystem::path latest_path(const std::filesystem::path& dir);
/// Returns the tag that `latest` names; nothing where there is no such file. Throws CheckpointError for one
/// that is empty, a folder or no text, IoError for one that cannot be read.
std::optional<std::string> read_latest(const std::filesystem::path& dir);
/// Replaces a small file beside the tags in one durable step. No other process takes what is written for a
/// leftover meanwhile.
void write_beside_tags(const std::filesystem::path& file, const std::string& text);
/// Replaces `latest` in one durable step, as write_beside_tags().
void write_latest(const std::filesystem::path& dir, const std::string& tag);

std::filesystem::path zero_to_fp32_script_path(const std::filesystem::path& dir);

std::filesystem::path latest_universal_path(const std::filesystem::path& dir);
/// Returns the tag of the universal checkpoint that `latest_universal` names. Throws as read_latest().
std::optional<std::string> read_latest_universal(const std::filesystem::path& dir);
/// Replaces `latest_universal` in one durable step.
void write_latest_universal(const std::filesystem::path& dir, const std::string& tag);

/// Returns the path <folder of a tag>/zero, which holds the parameters of a universal checkpoint.
std::filesystem::path universal_zero_folder(const std::filesystem::path& tag_folder);
std::filesystem::path universal_optimizer_path(const std::filesystem::path& tag_folder);
/// Returns the path of the file of one state of a parameter. Throws CheckpointError for a name that cannot be
/// that of a folder.
std::filesystem::path universal_state_path(const std::filesystem::path& tag_folder,
                                           const std::string& parameter, const std::string& state);
bool is_universal(const std::filesystem::path& tag_folder);
/// Lists each state of a parameter with its file, by name; empty where the folder has no such parameter.
std::vector<std::pair<std::string, std::filesystem::path>> find_universal_states(
    const std::filesystem::path& tag_folder, const std::string& parameter);

struct OptimStatesFile {
  std::filesystem::path path = {};
  int dp_rank = 0;
  int mp_rank = 0;
  bool bf16 = false;
};
/// Lists the optimizer files of a tag, by model-parallel and data-parallel rank; with `mp_rank` those of one
/// place among the ranks that share the model out.
std::vector<OptimStatesFile> find_optim_states(const std::filesystem::path& dir, const std::string& tag,
                                               std::optional<int> mp_rank = {});
/// Lists the places among the ranks that share the model out of which a tag has model files, ascending: 0
/// alone where each rank held it whole.
std::vector<int> find_mp_ranks(const std::filesystem::path& dir, const std::string& tag);
/// Lists the folders of `dir` that have a model's file, sorted by name.
std::vector<std::string> find_tags_with_model(const std::filesystem::path& dir);

struct LayerStatesFile {
  std::filesystem::path path = {};
  int layer = 0;
};
/// Lists the weights of a pipeline's layers, by layer; empty for another checkpoint. Throws NotSupportedError
/// where ranks have cut a layer.
std::vector<LayerStatesFile> find_layer_states(const std::filesystem::path& dir, const std::string& tag);
/// Returns the last layer of which a tag has weights, or a slice of them; nothing where it has none.
std::optional<int> last_stored_layer(const std::filesystem::path& dir, const std::string& tag);
/// Lists the files with the random streams of a tag's ranks.
std::vector<std::filesystem::path> find_rng_states(const std::filesystem::path& dir, const std::string& tag);
/// Lists the model files of a tag in the order of their names.
std::vector<std::filesystem::path> find_model_states(const std::filesystem::path& dir,
                                                     const std::string& tag);

/// Lists the model file of each data-parallel rank of stage 3; empty for a tag of another stage. Throws
/// CheckpointError, naming the file, where one between others is missing.
std::vector<std::filesystem::path> find_sharded_model_states(const std::filesystem::path& dir,
                                                             const std::string& tag, int mp_rank = 0);
struct ModelStatesFile {
  std::filesystem::path path = {};
  int mp_rank = 0;
};
/// Lists the model file of each place of find_mp_ranks(), or of `mp_rank` alone, at stage 3 that of its first
/// data-parallel rank. Throws CheckpointError, naming it, where one is missing. Throws UsageError for a place
/// that is none, and where several places hold weights under the same names, since ranks have cut layers, and
/// `mp_rank` names none of them.
std::vector<ModelStatesFile> require_model_states(const std::filesystem::path& dir, const std::string& tag,
                                                  std::optional<int> mp_rank = {});
/// Lists the places of a tag whose ranks have cut layers; empty for another tag.
std::vector<int> find_slices(const std::filesystem::path& dir, const std::string& tag);
/// Returns the name of a file of weights of one such place: "mp_rank_01_pytorch_model.bin".
std::string name_of_slice(int mp_rank, const std::string& name);
/// Throws CheckpointError, naming the file, where `files`, of find_optim_states() for one place, misses a
/// rank between others.
void require_each_rank(const std::vector<OptimStatesFile>& files, const std::filesystem::path& dir,
                       const std::string& tag, int mp_rank = 0);

/// Returns the name of a file of weights: "pytorch_model.bin" or "model.safetensors", with several shards
/// "pytorch_model-00001-of-00003.bin" (`shard` counts from 0).
std::string weights_name(bool safe_serialization, size_t shard = 0, size_t num_shards = 1);
/// Returns the name of the index of several shards: "pytorch_model.bin.index.json".
std::string weights_index_name(bool safe_serialization);

}  // namespace deepspeed::checkpoint
