// The sections are read in the order of the struct. Checks that concern several sections come last: the size
// of the grid, and lengths in epochs without records_per_epoch.
#include "deepspeed/trial/experiment/experiment.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "deepspeed/base/hash.h"
#include "deepspeed/trial/experiment/grid.h"
#include "deepspeed/trial/experiment/read_hyperparameters.h"
#include "deepspeed/trial/experiment/read_searcher.h"
#include "deepspeed/trial/experiment/yaml_section.h"

namespace deepspeed::trial {
namespace {

const std::vector<std::string> kExperimentKeys = {"name",
                                                  "description",
                                                  "labels",
                                                  "entrypoint",
                                                  "hyperparameters",
                                                  "searcher",
                                                  "data",
                                                  "max_restarts",
                                                  "records_per_epoch",
                                                  "resources",
                                                  "scheduling_unit",
                                                  "reproducibility",
                                                  "checkpoint_policy",
                                                  "checkpoint_storage",
                                                  "min_validation_period",
                                                  "min_checkpoint_period",
                                                  "save_experiment_best",
                                                  "save_trial_best",
                                                  "save_trial_latest"};
const std::vector<std::string> kKeptKeys = {"save_experiment_best", "save_trial_best", "save_trial_latest"};

std::vector<std::string> read_entrypoint(const YamlSection& top) {
  const Json* value = top.find("entrypoint");
  if (value == nullptr) return {};
  if (value->is_array() && !value->empty()) return top.texts("entrypoint");
  if (!value->is_string() || value->get_ref<const std::string&>().empty())
    top.fail_value("entrypoint", "a command, as text or as a list of words");
  return {"sh", "-c", value->get<std::string>()};
}

/// Reads the three numbers from the section checkpoint_storage, or from the top of the file.
KeptCheckpoints read_kept(const YamlSection& top) {
  const auto storage = top.section("checkpoint_storage", kKeptKeys);
  const auto number = [&](const std::string& key, int64_t absent) {
    const auto outside = top.whole(key, 0);
    const auto inside = storage ? storage->whole(key, 0) : std::nullopt;
    if (outside && inside) {
      top.fail(key, "given here and in checkpoint_storage, expected it once: got ", *outside, " and ",
               *inside);
    }
    return inside.value_or(outside.value_or(absent));
  };
  const KeptCheckpoints kept;
  return {number(kKeptKeys[0], kept.experiment_best), number(kKeptKeys[1], kept.trial_best),
          number(kKeptKeys[2], kept.trial_latest)};
}

/// Throws if a length counts epochs of unknown size.
void require_epochs(const YamlDocument& document, const std::string& path, const Length& length,
                    int64_t records_per_epoch) {
  if (length.unit != LengthUnit::kEpochs || length.amount == 0 || records_per_epoch > 0) return;
  raise<ConfigError>(document.place_of(path), ": ", path, ": got ", text_of(length),
                     " without records_per_epoch, expected that key beside it, the number of records in the ",
                     "training data; or a length in batches or records");
}

void size_grid(const YamlSection& top, Experiment& experiment) {
  const int64_t size = grid_size(experiment.hyperparameters, kMaxTrials);
  if (size > kMaxTrials) {
    top.fail("hyperparameters", "the grid has more than ", kMaxTrials,
             " points, expected fewer: lower the counts, or use the searcher random");
  }
  experiment.searcher.max_trials = size;
}

}  // namespace

Experiment parse_experiment(const YamlDocument& document) {
  const YamlSection top(document, "", document.value, kExperimentKeys);
  Experiment experiment;
  experiment.name = top.text("name", "");
  experiment.description = top.text("description", "");
  experiment.labels = top.texts("labels");
  experiment.entrypoint = read_entrypoint(top);
  const ReadSearcher searcher = read_searcher(top);
  experiment.searcher = searcher.config;
  const bool is_grid = searcher.config.method == SearchMethod::kGrid;
  experiment.hyperparameters = read_hyperparameters(document, is_grid);
  experiment.min_validation_period = top.length("min_validation_period", 0).value_or(Length{});
  experiment.min_checkpoint_period = top.length("min_checkpoint_period", 0).value_or(Length{});
  experiment.checkpoint_policy = static_cast<CheckpointPolicy>(
      top.choice("checkpoint_policy", {"best", "all", "none"}).value_or(size_t{0}));
  experiment.kept_checkpoints = read_kept(top);
  experiment.max_restarts = top.whole("max_restarts", 0).value_or(experiment.max_restarts);
  experiment.records_per_epoch = top.whole("records_per_epoch", 0).value_or(0);
  experiment.scheduling_unit = top.whole("scheduling_unit", 1).value_or(experiment.scheduling_unit);
  if (const auto resources = top.section("resources", {"slots_per_trial"}))
    experiment.slots_per_trial = resources->whole("slots_per_trial", 0).value_or(experiment.slots_per_trial);
  if (const auto section = top.section("reproducibility", {"experiment_seed"}))
    experiment.seed = static_cast<uint32_t>(section->whole("experiment_seed", 0, UINT32_MAX).value_or(0));
  if (const Json* data = top.find("data")) {
    if (!data->is_object()) top.fail_value("data", "a map");
    experiment.data = *data;
  }
  if (is_grid) size_grid(top, experiment);
  const std::pair<std::string, Length> lengths[] = {
      {"searcher." + searcher.length_key, experiment.searcher.max_length},
      {"min_validation_period", experiment.min_validation_period},
      {"min_checkpoint_period", experiment.min_checkpoint_period}};
  for (const auto& [path, length] : lengths)
    require_epochs(document, path, length, experiment.records_per_epoch);
  return experiment;
}

Experiment read_experiment(const std::filesystem::path& path) {
  return parse_experiment(read_yaml_file(path));
}

std::string digest_of(const Experiment& experiment) {
  const Json json = {{"hyperparameters", json_of(experiment.hyperparameters)},
                     {"searcher", json_of(experiment.searcher)},
                     {"data", experiment.data},
                     {"records_per_epoch", experiment.records_per_epoch}};
  // This type sorts its keys, so that the YAML's order makes no difference.
  const nlohmann::json sorted = json;
  return hex(sha256(sorted.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
}

}  // namespace deepspeed::trial
