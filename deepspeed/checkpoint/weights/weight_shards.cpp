#include "deepspeed/checkpoint/weights/weight_shards.h"

#include <map>
#include <set>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/text_file.h"

namespace deepspeed::checkpoint {
namespace {

constexpr uint64_t kMaxIndexBytes = 100'000'000;
namespace fs = std::filesystem;
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

/// Checks that a name from a file does not lead out of the folder.
void check_shard_name(const fs::path& index, const std::string& name) {
  if (!name.empty() && fs::path(name).filename() == name && name.find('\0') == std::string::npos) return;
  raise<CheckpointError>(index, " names the shard '", name, "', expected a file beside it");
}

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

}  // namespace

std::unique_ptr<WeightSource> open_weight_shards(const fs::path& index, const std::string& key) {
  return std::make_unique<ShardedWeights>(index, key);
}

}  // namespace deepspeed::checkpoint
