// Opens files of weights by their first bytes, not by their names.
//
// In a folder, open_weights() prefers safetensors to torch, and a single file to an index. A file that starts
// with a brace is an index of shards. "PK" is a zip archive of torch.save; 8 bytes of length and a brace are
// safetensors. A bare pickle (torch before 1.6) and a Git LFS pointer are refused, and the error names the
// way out. In a file of torch.save, the state dictionary is at the top or under a usual key. Names and sizes
// are read at once; data stays in the files until load().
#include "deepspeed/checkpoint/weights/weight_source.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/archive/safetensors_file.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"
#include "deepspeed/checkpoint/file/file_reader.h"
#include "deepspeed/checkpoint/sources/fp32_source.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

namespace fs = std::filesystem;

bool holds_tensors(const Dict& dict) {
  return std::ranges::any_of(
      dict.items(), [](const auto& item) { return item.second.template get_if<at::Tensor>() != nullptr; });
}

/// Lists the first keys of a dict for messages.
std::string some_keys(const Dict& dict) {
  constexpr size_t kNamed = 10;
  std::string text;
  for (size_t index = 0; index < std::min(dict.size(), kNamed); ++index) {
    const auto* key = dict.items()[index].first.get_if<std::string>();
    text +=
        (index == 0 ? "" : ", ") + (key != nullptr ? "'" + *key + "'" : std::string("a key that is no text"));
  }
  if (dict.size() > kNamed) text += message(" and ", dict.size() - kNamed, " more");
  return text.empty() ? "none" : text;
}

const Dict& state_dict_at(const fs::path& file, const Dict& root, const std::string& key) {
  const Value* found = root.find(key);
  const auto* dict = found == nullptr ? nullptr : found->get_if<Dict>();
  if (dict == nullptr) {
    raise<CheckpointError>(file, " holds no dict under the key '", key, "'; its keys are ", some_keys(root));
  }
  return *dict;
}

/// Finds the state dictionary in a file of torch.save, also under usual keys. Throws CheckpointError, listing
/// keys, if there is none or more than one.
const Dict& find_state_dict(const fs::path& file, const Value& value, const std::string& key) {
  const auto* root = value.get_if<Dict>();
  if (root == nullptr) {
    raise<CheckpointError>(file, " holds a ", value.kind(),
                           ", expected a state dictionary; save model.state_dict()");
  }
  if (!key.empty()) return state_dict_at(file, *root, key);
  constexpr auto kUsualKeys =
      std::to_array<const char*>({"state_dict", "model_state_dict", "model", "module"});
  const Dict* inner = nullptr;
  for (const char* usual : kUsualKeys) {
    const Value* entry = root->find(usual);
    const auto* dict = entry == nullptr ? nullptr : entry->get_if<Dict>();
    if (dict == nullptr || !holds_tensors(*dict)) continue;
    if (inner != nullptr) {
      raise<CheckpointError>(file,
                             " holds more than one state dictionary; name the one to load by its key, of ",
                             some_keys(*root));
    }
    inner = dict;
  }
  if (inner != nullptr) return *inner;
  if (root->size() == 0 || holds_tensors(*root)) return *root;
  raise<CheckpointError>(file,
                         " holds no state dictionary at its top or under a usual key; name its key, of ",
                         some_keys(*root));
}

class TorchWeights : public WeightSource {
 public:
  TorchWeights(const fs::path& file, const std::string& key) : WeightSource(file), archive_(file) {
    for (const auto& [name, value] : find_state_dict(file, archive_.value(), key).items()) {
      const auto* text = name.get_if<std::string>();
      if (text == nullptr) {
        raise<CheckpointError>(file, " has a ", name.kind(),
                               " among the names of its weights, expected texts");
      }
      if (const auto* tensor = value.get_if<at::Tensor>()) {
        weights_.emplace_back(*text, *tensor);
      } else {
        other_entries_.push_back(*text);
      }
    }
  }

  at::Tensor load(size_t index) const override { return archive_.load(weights_[index].tensor); }
  void verify() const override { archive_.verify(); }

 private:
  DeferredArchive archive_;
};

class SafetensorsWeights : public WeightSource {
 public:
  explicit SafetensorsWeights(const fs::path& file) : WeightSource(file), file_(file) {
    weights_ = file_.tensors();
  }

  at::Tensor load(size_t index) const override { return file_.load(weights_[index].name); }
  void verify() const override {}  // the format has no checksums, and truncation was checked when opening

 private:
  SafetensorsFile file_;
};

/// Reads the first 32 bytes of a file, or all if it has fewer. They tell its format.
std::string first_bytes(const fs::path& file) {
  const FileReader reader(file);
  std::string bytes(std::min<uint64_t>(32, reader.size()), '\0');
  reader.read(0, bytes.data(), bytes.size());
  return bytes;
}

/// Returns whether the bytes start with an 8-byte length below 4 GiB and a brace.
bool begins_as_safetensors(std::string_view bytes) {
  return bytes.size() > 8 && bytes[8] == '{' && bytes.substr(4, 4) == std::string_view("\0\0\0\0", 4);
}

/// Returns whether a bare pickle starts here, without a zip archive around it.
bool begins_as_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

/// Opens a single file that is not an index.
std::unique_ptr<WeightSource> open_weight_file(const fs::path& file, const std::string& key) {
  const std::string bytes = first_bytes(file);
  if (bytes.starts_with("PK")) return std::make_unique<TorchWeights>(file, key);
  if (begins_as_safetensors(bytes) || file.extension() == ".safetensors")
    return std::make_unique<SafetensorsWeights>(file);
  if (begins_as_pickle(bytes)) {
    raise<NotSupportedError>(
        file,
        " is in the format of torch before 1.6; convert it with: python -c \"import torch; "
        "torch.save(torch.load('old.bin', map_location='cpu', weights_only=True), 'new.bin')\"");
  }
  if (bytes.starts_with("version https://git-lfs")) {
    raise<CheckpointError>(file, " only points to the weights; fetch them with: git lfs pull");
  }
  raise<CheckpointError>(file, " is neither a file of torch.save nor of safetensors nor an index of shards");
}

constexpr uint64_t kMaxIndexBytes = 100'000'000;
using WeightMap = std::map<std::string, std::set<std::string>>;  // file -> names of its weights

WeightMap read_weight_map(const fs::path& index) {
  try {
    WeightMap files;
    const Json json = parse_json(read_text_file(index, kMaxIndexBytes), index.string(), kMaxIndexBytes);
    for (const auto& [name, shard] : json.at("weight_map").items())
      files[shard.get<std::string>()].insert(name);
    return files;
  } catch (const Json::exception& error) {
    raise<CheckpointError>(index, " is not an index of shards: ", error.what());
  } catch (const ConfigError& error) {
    raise<CheckpointError>(index, " is not an index of shards: ", error.what());
  }
}

/// Throws CheckpointError if a name from a file leads out of the folder.
void check_shard_name(const fs::path& index, const std::string& name) {
  if (!name.empty() && fs::path(name).filename() == name && name.find('\0') == std::string::npos) return;
  raise<CheckpointError>(index, " names the shard '", name, "', expected a file beside it");
}

/// Reads weights spread over several files. An index names the file of each: {"weight_map": {name: file in
/// the same folder}}.
class ShardedWeights : public WeightSource {
 public:
  ShardedWeights(const fs::path& index, const std::string& key) : WeightSource(index) {
    const WeightMap files = read_weight_map(index);
    for (const auto& [file, names] : files) {
      check_shard_name(index, file);
      if (!fs::is_regular_file(index.parent_path() / file)) {
        raise<CheckpointError>("the shard ", index.parent_path() / file, " is missing; ", index.filename(),
                               " names it for ", names.size(), " weights");
      }
    }
    for (const auto& [file, names] : files) add_shard(index.parent_path() / file, names, key);
  }

  at::Tensor load(size_t index) const override {
    const auto& [shard, place] = places_[index];
    return shards_[shard]->load(place);
  }
  void verify() const override {
    for (const auto& shard : shards_) shard->verify();
  }

 private:
  void add_shard(const fs::path& file, std::set<std::string> names, const std::string& key) {
    const auto& shard = shards_.emplace_back(open_weight_file(file, key));
    for (size_t place = 0; place < shard->weights().size(); ++place) {
      const auto& [name, tensor] = shard->weights()[place];
      if (names.erase(name) == 0) continue;
      weights_.emplace_back(name, tensor);
      places_.emplace_back(shards_.size() - 1, place);
    }
    if (!names.empty()) {
      raise<CheckpointError>(file, " lacks '", *names.begin(), "'",
                             names.size() > 1 ? message(" and ", names.size() - 1, " other weights") : "",
                             ", which ", path_.filename(), " says it has");
    }
  }

  std::vector<std::unique_ptr<WeightSource>> shards_;
  std::vector<std::pair<size_t, size_t>> places_;  // for each weight: its shard, and its index there
};

class Fp32Weights : public WeightSource {
 public:
  Fp32Weights(const fs::path& dir, const std::string& tag, std::optional<int> mp_rank)
      : WeightSource(dir / tag), source_(dir, tag, Fp32Source::Options{.mp_rank = mp_rank}) {
    weights_ = source_.weights();
  }

  at::Tensor load(size_t index) const override { return source_.load(weights_[index].tensor); }
  void verify() const override {
    for (size_t index = 0; index < weights_.size(); ++index) load(index);
    source_.check_rest();
  }

 private:
  Fp32Source source_;
};

/// Finds the file of weights or the index in a folder. Throws CheckpointError if there is none.
fs::path weights_in_folder(const fs::path& folder) {
  for (const bool safetensors : {true, false}) {
    for (const std::string& name : {weights_name(safetensors), weights_index_name(safetensors)}) {
      if (fs::exists(folder / name)) return folder / name;
    }
  }
  raise<CheckpointError>(
      folder, " holds neither ", weights_name(true), " nor ", weights_name(false),
      " nor the index of one in shards",
      fs::exists(latest_path(folder))
          ? "; it is the folder of a checkpoint: load_checkpoint() or load_state_dict_from_zero_checkpoint()"
          : "; name the file");
}

}  // namespace

std::unique_ptr<WeightSource> open_weights(const fs::path& path, const std::string& key) {
  const auto file = fs::is_directory(path) ? weights_in_folder(path) : path;
  const std::string bytes = first_bytes(file);
  if (bytes.starts_with("{") && !begins_as_safetensors(bytes))
    return std::make_unique<ShardedWeights>(file, key);
  return open_weight_file(file, key);
}

std::unique_ptr<WeightSource> open_zero_checkpoint(const fs::path& dir, const std::optional<std::string>& tag,
                                                   std::optional<int> mp_rank) {
  return std::make_unique<Fp32Weights>(dir, chosen_tag(dir, tag), mp_rank);
}

}  // namespace deepspeed::checkpoint
