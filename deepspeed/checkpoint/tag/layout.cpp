// Makes and parses the names of checkpoint files, and lists the files in a folder.
//
// The ..._path() functions make names. The find_...() functions list a tag's folder and parse each name
// (parse_rank_file). They sort by rank, because folders list entries in any order, and skip names that do not
// parse. The require_...() functions throw if a file is missing in a sequence. Names that come from files,
// such as the tag in `latest` or a parameter's name, are checked so that none leads out of the folder.
#include "deepspeed/checkpoint/tag/layout.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/tag/staging_lock.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kUniversalSuffix = ".pt";
constexpr const char* kRngStates = "rng_states_rank_";
constexpr const char* kModelStates = "_model_states.pt";
constexpr const char* kDefaultTag = "global_step";
constexpr size_t kMaxLatestBytes = size_t{1} << 20;
constexpr size_t kLongestPath = 1000;  // bytes; a tag may be in a subfolder: "run/step5"
using std::filesystem::path;

/// Formats the number with at least `width` digits.
std::string digits(int64_t number, size_t width) {
  const std::string text = std::to_string(number);
  return std::string(text.size() < width ? width - text.size() : 0, '0') + text;
}

std::string zero_prefix(int dp_rank, int mp_rank) {
  return message("zero_pp_rank_", dp_rank, "_mp_rank_", digits(mp_rank, 2));
}

std::vector<path> files_of(const path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    raise<CheckpointError>("there is no checkpoint folder ", folder,
                           "; pass the folder that holds the tags, and one of its tags");
  }
  std::vector<path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

std::vector<path> files_that_end_with(const path& folder, std::string_view ending) {
  std::vector<path> found = files_of(folder);
  std::erase_if(found, [&](const path& file) { return !file.filename().string().ends_with(ending); });
  return found;
}

[[noreturn]] void refuse_latest(const path& latest, const std::string& what, const char* first_way_out) {
  raise<CheckpointError>(latest, " ", what, ", expected the name of a tag; ", first_way_out,
                         "write the name of a folder beside it there, or pass the tag");
}

std::optional<std::string> read_tag(const path& latest) {
  std::error_code unknown;
  if (!std::filesystem::exists(latest, unknown)) return std::nullopt;
  if (std::filesystem::is_directory(latest, unknown)) refuse_latest(latest, "is a folder", "rename it and ");
  std::string tag = read_text_file(latest, kMaxLatestBytes);
  while (!tag.empty() && std::isspace(static_cast<unsigned char>(tag.back())) != 0) tag.pop_back();
  if (tag.empty()) refuse_latest(latest, "is empty", "");
  const auto is_control = [](unsigned char byte) { return std::iscntrl(byte) != 0; };
  if (std::any_of(tag.begin(), tag.end(), is_control))
    refuse_latest(latest, message("holds ", tag.size(), " bytes that are no text"), "");
  if (!is_utf8(tag)) refuse_latest(latest, "holds bytes that are not UTF-8", "");
  if (tag.size() > kLongestPath)
    refuse_latest(latest, message("holds ", tag.size(), " characters, too many for a folder's name"), "");
  return tag;
}

/// Returns the folder of a parameter. Throws CheckpointError if the name, which may come from a file, leads
/// out of the tag's folder.
path universal_parameter_folder(const path& tag_folder, const std::string& parameter) {
  const bool is_name = !parameter.empty() && parameter != "." && parameter != ".." &&
                       parameter.find('/') == std::string::npos && parameter.find('\0') == std::string::npos;
  if (!is_name) {
    raise<CheckpointError>("the parameter '", parameter,
                           "' cannot be in a universal checkpoint: a folder cannot have its name");
  }
  return universal_zero_folder(tag_folder) / parameter;
}

/// Parses the ranks in a file's name. Returns nothing if it has another form or does not end in `ending`.
std::optional<OptimStatesFile> parse_rank_file(const path& file, std::string_view ending) {
  OptimStatesFile parsed{file};
  const std::string text = file.filename().string();
  std::string_view name = text;
  parsed.bf16 = take_prefix(name, "bf16_");
  if (!take_prefix(name, "zero_pp_rank_") || !take_number(name, parsed.dp_rank)) return std::nullopt;
  if (!take_prefix(name, "_mp_rank_") || !take_number(name, parsed.mp_rank)) return std::nullopt;
  take_prefix(name, "_");  // missing in names of old DeepSpeed versions
  return name == ending ? std::optional(std::move(parsed)) : std::nullopt;
}

std::optional<int> mp_rank_of_plain_file(std::string_view name) {
  int mp_rank = 0;
  const bool is_one = take_prefix(name, "mp_rank_") && take_number(name, mp_rank) && name == kModelStates;
  return is_one ? std::optional(mp_rank) : std::nullopt;
}

/// Returns the pipeline layer in the name of a file of weights. Nothing for other files.
std::optional<int> layer_of_file(std::string_view name) {
  int layer = 0;
  const bool is_one = take_prefix(name, "layer_") && take_number(name, layer) && take_prefix(name, "-") &&
                      name.ends_with("model_states.pt");
  return is_one ? std::optional(layer) : std::nullopt;
}

std::vector<OptimStatesFile> find_rank_files(const path& folder, std::string_view ending) {
  std::vector<OptimStatesFile> found;
  for (const path& file : files_of(folder)) {
    if (auto parsed = parse_rank_file(file, ending)) found.push_back(std::move(*parsed));
  }
  std::ranges::sort(found, {},
                    [](const OptimStatesFile& file) { return std::pair(file.mp_rank, file.dp_rank); });
  return found;
}

[[noreturn]] void refuse_model_parallel(const path& file) {
  raise<NotSupportedError>(file, " is a slice of a pipeline's layer, and slices cannot be put together yet; ",
                           "load_checkpoint() resumes from it");
}

}  // namespace

path model_states_path(const path& dir, const std::string& tag, int mp_rank) {
  return dir / tag / ("mp_rank_" + digits(mp_rank, 2) + kModelStates);
}

path sharded_model_states_path(const path& dir, const std::string& tag, int dp_rank, int mp_rank) {
  return dir / tag / (zero_prefix(dp_rank, mp_rank) + kModelStates);
}

path optim_states_path(const path& dir, const std::string& tag, int dp_rank, int mp_rank, bool bf16) {
  return dir / tag / ((bf16 ? "bf16_" : "") + zero_prefix(dp_rank, mp_rank) + "_optim_states.pt");
}

path layer_states_path(const path& dir, const std::string& tag, int layer, const std::string& slice) {
  return dir / tag /
         message("layer_", digits(layer, 2), slice.empty() ? "" : "-" + slice, "-model_states.pt");
}

// The name must not start like those of optimizer files: DeepSpeed's ds_to_universal reads all of those.
path rng_states_path(const path& dir, const std::string& tag, int dp_rank, int mp_rank) {
  return dir / tag / message(kRngStates, dp_rank, "_mp_rank_", digits(mp_rank, 2), ".pt");
}

bool is_rng_file(const std::string& file) {
  std::string_view name = file;
  int rank = 0;
  return take_prefix(name, kRngStates) && take_number(name, rank) && take_prefix(name, "_mp_rank_") &&
         take_number(name, rank) && name == ".pt";
}

bool is_optimizer_file(const std::string& name) {
  return parse_rank_file(name, "optim_states.pt") ||
         name.starts_with((universal_zero_folder("") / "").string());
}

bool is_checkpoint_file(const std::string& name) {
  return mp_rank_of_plain_file(name) || layer_of_file(name) || is_rng_file(name) ||
         parse_rank_file(name, "model_states.pt") || parse_rank_file(name, "optim_states.pt");
}

std::string default_tag(int64_t global_steps) { return kDefaultTag + std::to_string(global_steps); }

bool is_default_tag(const std::string& tag) {
  std::string_view rest = tag;
  return take_prefix(rest, kDefaultTag) && !rest.empty() &&
         rest.find_first_not_of("0123456789") == std::string_view::npos;
}

path manifest_path(const path& tag_folder) { return tag_folder / "manifest.json"; }

path latest_path(const path& dir) { return dir / "latest"; }

std::optional<std::string> read_latest(const path& dir) { return read_tag(latest_path(dir)); }

void write_beside_tags(const path& file, const std::string& text) {
  const Folder folder(file.parent_path());
  const StagingLock lock = wait_for_lock(folder);
  write_text_atomically(folder, file.filename().string(), text);
}

void write_latest(const path& dir, const std::string& tag) { write_beside_tags(latest_path(dir), tag); }

path zero_to_fp32_script_path(const path& dir) { return dir / "zero_to_fp32.py"; }

path latest_universal_path(const path& dir) { return dir / "latest_universal"; }

std::optional<std::string> read_latest_universal(const path& dir) {
  return read_tag(latest_universal_path(dir));
}

void write_latest_universal(const path& dir, const std::string& tag) {
  write_beside_tags(latest_universal_path(dir), tag);
}

path universal_zero_folder(const path& tag_folder) { return tag_folder / "zero"; }

path universal_optimizer_path(const path& tag_folder) {
  return universal_zero_folder(tag_folder) / "optimizer_state.pt";
}

path universal_state_path(const path& tag_folder, const std::string& parameter, const std::string& state) {
  return universal_parameter_folder(tag_folder, parameter) / (state + kUniversalSuffix);
}

bool is_universal(const path& tag_folder) {
  std::error_code error;
  return std::filesystem::exists(universal_optimizer_path(tag_folder), error);
}

std::vector<std::pair<std::string, path>> find_universal_states(const path& tag_folder,
                                                                const std::string& parameter) {
  const path folder = universal_parameter_folder(tag_folder, parameter);
  std::vector<std::pair<std::string, path>> states;
  if (!std::filesystem::is_directory(folder)) return states;
  for (const path& file : files_that_end_with(folder, kUniversalSuffix))
    states.emplace_back(file.stem().string(), file);
  return states;
}

std::vector<OptimStatesFile> find_optim_states(const path& dir, const std::string& tag,
                                               std::optional<int> mp_rank) {
  std::vector<OptimStatesFile> found = find_rank_files(dir / tag, "optim_states.pt");
  if (mp_rank) std::erase_if(found, [&](const OptimStatesFile& file) { return file.mp_rank != *mp_rank; });
  return found;
}

std::vector<int> find_mp_ranks(const path& dir, const std::string& tag) {
  std::set<int> ranks;
  if (std::filesystem::is_directory(dir / tag)) {
    for (const path& file : files_of(dir / tag)) {
      if (const auto mp_rank = mp_rank_of_plain_file(file.filename().string())) ranks.insert(*mp_rank);
    }
    for (const OptimStatesFile& file : find_rank_files(dir / tag, "model_states.pt"))
      ranks.insert(file.mp_rank);
  }
  return {ranks.begin(), ranks.end()};
}

std::vector<std::string> find_tags_with_model(const path& dir) {
  std::vector<std::string> tags;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with('.') && !find_mp_ranks(dir, name).empty()) tags.push_back(name);
  }
  std::ranges::sort(tags);
  return tags;
}

std::vector<LayerStatesFile> find_layer_states(const path& dir, const std::string& tag) {
  std::vector<LayerStatesFile> found;
  if (!std::filesystem::is_directory(dir / tag)) return found;
  for (const path& file : files_of(dir / tag)) {
    const std::string name = file.filename().string();
    const auto layer = layer_of_file(name);
    if (!layer) continue;
    if (file.filename() != layer_states_path(dir, tag, *layer).filename()) refuse_model_parallel(file);
    found.push_back({file, *layer});
  }
  std::ranges::sort(found, {}, &LayerStatesFile::layer);
  return found;
}

std::optional<int> last_stored_layer(const path& dir, const std::string& tag) {
  std::optional<int> last;
  for (const path& file : files_of(dir / tag)) {
    if (const auto layer = layer_of_file(file.filename().string())) last = std::max(last, layer);
  }
  return last;
}

std::vector<path> find_rng_states(const path& dir, const std::string& tag) {
  std::vector<path> found = files_of(dir / tag);
  std::erase_if(found, [](const path& file) { return !file.filename().string().starts_with(kRngStates); });
  return found;
}

std::vector<path> find_model_states(const path& dir, const std::string& tag) {
  return files_that_end_with(dir / tag, kModelStates);
}

std::vector<path> find_sharded_model_states(const path& dir, const std::string& tag, int mp_rank) {
  std::vector<path> files;
  if (!std::filesystem::is_directory(dir / tag)) return files;
  for (const OptimStatesFile& file : find_rank_files(dir / tag, "model_states.pt")) {
    if (file.mp_rank != mp_rank) continue;
    const path expected = sharded_model_states_path(dir, tag, int(files.size()), mp_rank);
    if (file.path.filename() != expected.filename())
      raise<CheckpointError>("the file ", expected, " is missing");
    files.push_back(file.path);
  }
  return files;
}

std::vector<ModelStatesFile> require_model_states(const path& dir, const std::string& tag,
                                                  std::optional<int> chosen) {
  const std::vector<int> mp_ranks = find_mp_ranks(dir, tag);
  if (mp_ranks.empty()) {
    find_model_states(dir, tag);  // throws if there is no such folder
    raise<CheckpointError>("the file ", model_states_path(dir, tag), " is missing");
  }
  const auto num_places = int(mp_ranks.size());
  const bool is_cut = num_places > 1 && find_layer_states(dir, tag).empty();
  if (is_cut && !chosen) {
    raise<UsageError>(dir / tag, " is of ", num_places,
                      " model-parallel ranks, which have cut layers; name the one whose part is wanted, as ",
                      "mp_rank = 0 to ", num_places - 1);
  }
  if (chosen && (*chosen < 0 || *chosen >= num_places)) {
    raise<UsageError>("mp_rank is ", *chosen, ", but ", dir / tag, " is of ", num_places,
                      " model-parallel ranks, 0 to ", num_places - 1);
  }
  std::vector<ModelStatesFile> files;
  for (int mp_rank = 0; mp_rank < num_places; ++mp_rank) {
    if (mp_ranks[size_t(mp_rank)] != mp_rank)
      raise<CheckpointError>("the file ", model_states_path(dir, tag, mp_rank), " is missing");
    if (is_cut && mp_rank != *chosen) continue;
    const std::vector<path> sharded = find_sharded_model_states(dir, tag, mp_rank);
    files.push_back({sharded.empty() ? model_states_path(dir, tag, mp_rank) : sharded.front(), mp_rank});
  }
  return files;
}

std::vector<int> find_slices(const path& dir, const std::string& tag) {
  const std::vector<int> mp_ranks = find_mp_ranks(dir, tag);
  const bool is_cut = mp_ranks.size() > 1 && find_layer_states(dir, tag).empty();
  return is_cut ? mp_ranks : std::vector<int>();
}

std::string name_of_slice(int mp_rank, const std::string& name) {
  return message("mp_rank_", digits(mp_rank, 2), "_", name);
}

void require_each_rank(const std::vector<OptimStatesFile>& files, const path& dir, const std::string& tag,
                       int mp_rank) {
  for (size_t rank = 0; rank < files.size(); ++rank) {
    if (files[rank].dp_rank == int(rank)) continue;
    raise<CheckpointError>("the file ", optim_states_path(dir, tag, int(rank), mp_rank, files[0].bf16),
                           " is missing");
  }
}

std::string weights_name(bool safe_serialization, size_t shard, size_t num_shards) {
  const std::string stem = safe_serialization ? "model" : "pytorch_model";
  const std::string suffix = safe_serialization ? ".safetensors" : ".bin";
  if (num_shards <= 1) return stem + suffix;
  return stem + "-" + digits(int64_t(shard) + 1, 5) + "-of-" + digits(int64_t(num_shards), 5) + suffix;
}

std::string weights_index_name(bool safe_serialization) {
  return weights_name(safe_serialization) + ".index.json";
}

}  // namespace deepspeed::checkpoint
