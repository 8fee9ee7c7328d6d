// Writes the result of zero_to_fp32: one file or shards, in torch's format or safetensors.
#include <cctype>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/archive/safetensors.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/sources/fp32_source.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/tag_name.h"

namespace deepspeed::checkpoint {
namespace {

using std::filesystem::path;

/// Distributes the weights, in order, over shards of at most `max_bytes`. A larger tensor gets its own shard.
/// All names of a tensor go into one shard.
std::vector<NamedTensors> split_into_shards(const NamedTensors& weights, uint64_t max_bytes) {
  std::vector<NamedTensors> shards(1);
  std::unordered_map<const void*, size_t> shard_of_tensor;
  uint64_t used_bytes = 0;
  for (const auto& [name, tensor] : weights) {
    const auto [known, is_new] = shard_of_tensor.try_emplace(tensor.unsafeGetTensorImpl(), shards.size() - 1);
    if (!is_new) {
      shards[known->second].emplace_back(name, tensor);
      continue;
    }
    if (!shards.back().empty() && used_bytes + tensor.nbytes() > max_bytes) {
      shards.emplace_back();
      used_bytes = 0;
      known->second = shards.size() - 1;
    }
    shards.back().emplace_back(name, tensor);
    used_bytes += tensor.nbytes();
  }
  return shards;
}

void write_weights(const path& file, const NamedTensors& weights, bool safe_serialization,
                   const TensorStream& stream) {
  if (safe_serialization) {
    write_safetensors(file, weights, stream);
    return;
  }
  Dict dict(/*ordered=*/true);
  for (const auto& [name, tensor] : weights) dict.items().emplace_back(name, tensor);
  write_archive_content(file, make_archive_content(dict, stream));
}

/// Counts the bytes of all weights. A weight with several names counts once, except in safetensors.
uint64_t num_bytes(const NamedTensors& weights, bool safe_serialization) {
  std::unordered_set<const void*> seen;
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : weights) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second || safe_serialization) bytes += tensor.nbytes();
  }
  return bytes;
}

bool is_file_name(const path& output) {
  const path extension = output.extension();
  return extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".safetensors";
}

}  // namespace

uint64_t parse_shard_size(const std::string& text) {
  size_t end = 0;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
  static const std::unordered_map<std::string, uint64_t> kUnits = {{"", 1},
                                                                   {"KB", 1'000},
                                                                   {"MB", 1'000'000},
                                                                   {"GB", 1'000'000'000},
                                                                   {"TB", 1'000'000'000'000},
                                                                   {"KIB", uint64_t{1} << 10},
                                                                   {"MIB", uint64_t{1} << 20},
                                                                   {"GIB", uint64_t{1} << 30},
                                                                   {"TIB", uint64_t{1} << 40}};
  std::string unit = text.substr(end);
  for (char& letter : unit) letter = char(std::toupper(static_cast<unsigned char>(letter)));
  const auto found = kUnits.find(unit);
  uint64_t bytes = 0;
  if (end == 0 || end > 18 || found == kUnits.end() ||
      __builtin_mul_overflow(std::stoull(text.substr(0, end)), found->second, &bytes) || bytes == 0) {
    raise<UsageError>("max_shard_size is '", text, "', expected a size like 5GB, 200MiB or 1000000");
  }
  return bytes;
}

namespace {

/// Writes the weights of a model or of one part, and returns the files. name_of() maps the usual file name to
/// the name to use.
std::vector<path> write_source(const Fp32Source& source, const path& output, const ConvertOptions& options,
                               const std::function<std::string(const std::string&)>& name_of) {
  const uint64_t max_bytes = parse_shard_size(options.max_shard_size);
  const NamedTensors& weights = source.weights();
  const bool safetensors = options.safe_serialization || output.extension() == ".safetensors";
  const uint64_t all_bytes = num_bytes(weights, safetensors);
  uint64_t done_bytes = 0;
  const TensorStream stream = [&](const at::Tensor& weight, const PieceSink& sink) {
    source.stream(weight, [&](const void* data, size_t size) {
      sink(data, size);
      done_bytes += size;
      if (options.progress) options.progress(done_bytes, all_bytes);
    });
    if (done_bytes >= all_bytes) source.check_rest();  // before the last file gets its name
  };
  if (is_file_name(output)) {
    make_folders(output.parent_path());
    const path file = output.parent_path() / name_of(output.filename().string());
    write_weights(file, weights, safetensors, stream);
    return {file};
  }
  make_folders(output);
  const std::vector<NamedTensors> shards = split_into_shards(weights, max_bytes);
  std::vector<path> files;
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  uint64_t total_bytes = 0;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string name = name_of(weights_name(options.safe_serialization, shard, shards.size()));
    write_weights(output / name, shards[shard], options.safe_serialization, stream);
    files.push_back(output / name);
    for (const auto& [weight, tensor] : shards[shard]) {
      index["weight_map"][weight] = name;
      total_bytes += tensor.nbytes();
    }
  }
  if (shards.size() > 1) {
    index["metadata"]["total_size"] = total_bytes;
    files.push_back(output / name_of(weights_index_name(options.safe_serialization)));
    write_text_atomically(files.back(), index.dump(2) + "\n");
  }
  return files;
}

}  // namespace

std::vector<path> convert_zero_checkpoint_to_fp32_state_dict(const path& dir, const path& output,
                                                             const ConvertOptions& options) {
  parse_shard_size(options.max_shard_size);
  if (is_name_beside_tags(output.filename().string())) {
    raise<UsageError>("the output ", output, " has the name of a file of checkpoints; choose another");
  }
  const std::string tag = chosen_tag(dir, options.tag);
  const auto open = [&](std::optional<int> mp_rank) {
    return Fp32Source(dir, tag,
                      {.exclude_frozen_parameters = options.exclude_frozen_parameters, .mp_rank = mp_rank});
  };
  const std::vector<int> slices = options.mp_rank ? std::vector<int>() : find_slices(dir, tag);
  if (slices.empty())
    return write_source(open(options.mp_rank), output, options, [](const std::string& name) { return name; });
  std::vector<path> files;
  for (const int mp_rank : slices) {
    const auto name_of = [&](const std::string& name) { return name_of_slice(mp_rank, name); };
    const std::vector<path> written = write_source(open(mp_rank), output, options, name_of);
    files.insert(files.end(), written.begin(), written.end());
  }
  return files;
}

}  // namespace deepspeed::checkpoint
