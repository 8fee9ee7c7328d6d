#include "deepspeed/checkpoint/layout.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/atomic_file.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kLayoutWhere = "checkpoint.layout";
using std::filesystem::path;

/// The number with at least `width` digits.
std::string digits(int64_t number, size_t width) {
  const std::string text = std::to_string(number);
  return std::string(text.size() < width ? width - text.size() : 0, '0') + text;
}

std::string zero_prefix(int dp_rank, int mp_rank) {
  return message("zero_pp_rank_", dp_rank, "_mp_rank_", digits(mp_rank, 2));
}

std::vector<path> files_of(const path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    raise<CheckpointError>(kLayoutWhere, "there is no checkpoint folder ", folder);
  }
  std::vector<path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

/// Takes `text` from the front of `name`; false where it does not stand there.
bool take(std::string_view& name, std::string_view text) {
  if (!name.starts_with(text)) return false;
  name.remove_prefix(text.size());
  return true;
}

bool take_number(std::string_view& name, int& number) {
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || number < 0) return false;
  name.remove_prefix(size_t(end - name.data()));
  return true;
}

std::optional<OptimStatesFile> parse_optim_states(const path& file) {
  OptimStatesFile parsed{file};
  const std::string text = file.filename().string();
  std::string_view name = text;
  parsed.bf16 = take(name, "bf16_");
  if (!take(name, "zero_pp_rank_") || !take_number(name, parsed.dp_rank)) return std::nullopt;
  if (!take(name, "_mp_rank_") || !take_number(name, parsed.mp_rank)) return std::nullopt;
  take(name, "_");  // old DeepSpeed versions left it out
  return name == "optim_states.pt" ? std::optional(std::move(parsed)) : std::nullopt;
}

}  // namespace

path model_states_path(const path& dir, const std::string& tag, int mp_rank) {
  return dir / tag / ("mp_rank_" + digits(mp_rank, 2) + "_model_states.pt");
}

path optim_states_path(const path& dir, const std::string& tag, int dp_rank, int mp_rank, bool bf16) {
  return dir / tag / ((bf16 ? "bf16_" : "") + zero_prefix(dp_rank, mp_rank) + "_optim_states.pt");
}

path rng_states_path(const path& dir, const std::string& tag, int dp_rank, int mp_rank) {
  return dir / tag / (zero_prefix(dp_rank, mp_rank) + "_rng_states.pt");
}

std::string default_tag(int64_t global_steps) { return "global_step" + std::to_string(global_steps); }

path manifest_path(const path& tag_folder) { return tag_folder / "manifest.json"; }

path latest_path(const path& dir) { return dir / "latest"; }

std::optional<std::string> read_latest(const path& dir) {
  std::ifstream file(latest_path(dir));
  if (!file) return std::nullopt;
  std::stringstream content;
  content << file.rdbuf();
  std::string tag = content.str();
  while (!tag.empty() && std::isspace(static_cast<unsigned char>(tag.back())) != 0) tag.pop_back();
  if (tag.empty())
    raise<CheckpointError>(kLayoutWhere, latest_path(dir), " is empty, expected the name of a tag");
  return tag;
}

void write_latest(const path& dir, const std::string& tag) { write_text_atomically(latest_path(dir), tag); }

std::vector<OptimStatesFile> find_optim_states(const path& dir, const std::string& tag) {
  std::vector<OptimStatesFile> found;
  for (const path& file : files_of(dir / tag)) {
    if (auto parsed = parse_optim_states(file)) found.push_back(std::move(*parsed));
  }
  std::ranges::sort(found, {},
                    [](const OptimStatesFile& file) { return std::pair(file.mp_rank, file.dp_rank); });
  return found;
}

std::vector<path> find_model_states(const path& dir, const std::string& tag) {
  std::vector<path> found;
  for (const path& file : files_of(dir / tag)) {
    if (file.filename().string().ends_with("_model_states.pt")) found.push_back(file);
  }
  return found;
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
