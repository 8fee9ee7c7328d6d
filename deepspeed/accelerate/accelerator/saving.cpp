// Accelerator's files. Their names and contents are those that Python's save_state() and load_state() use.
#include <algorithm>
#include <filesystem>

#include <ATen/CPUGeneratorImpl.h>

#include "deepspeed/accelerate/accelerator/accelerator.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/safetensors.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/json_value.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/zero/gathered_parameters.h"

namespace deepspeed::accelerate {
namespace {

namespace fs = std::filesystem;

/// Returns NAME for the first object, NAME_1 for the second.
std::string numbered(const std::string& name, size_t index) {
  return index == 0 ? name : name + "_" + std::to_string(index);
}

fs::path random_states_file(const fs::path& folder, int rank) {
  return folder / ("random_states_" + std::to_string(rank) + ".pkl");
}

fs::path custom_file(const fs::path& folder, size_t index) {
  return folder / ("custom_checkpoint_" + std::to_string(index) + ".pkl");
}

/// Writes the parts of Python's random states that C++ has.
void write_random_states(const fs::path& file, int64_t step, const std::vector<int64_t>& epochs) {
  const at::Generator& generator = at::detail::getDefaultCPUGenerator();
  checkpoint::Dict states;
  states.set("step", step);
  states.set("torch_manual_seed", generator.get_state());
  states.set("dataloader_epochs", checkpoint::List(epochs.begin(), epochs.end()));  // Python's has none
  checkpoint::write_torch_archive(file, states);
}

/// Holds what a file of random states has beside them.
struct Counters {
  std::optional<int64_t> step;
  std::vector<int64_t> epochs;  ///< of the loaders; empty in Python's file
};

/// Sets the random states that a file has, and returns the rest.
Counters read_random_states(const fs::path& file) {
  const checkpoint::Value value = checkpoint::read_torch_archive(file);
  const checkpoint::Dict& states = value.as_dict();
  if (const auto* state = states.find("torch_manual_seed")) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(state->as_tensor());
  }
  Counters counters;
  if (const auto* step = states.find("step")) counters.step = step->as_int();
  if (const auto* epochs = states.find("dataloader_epochs"))
    for (const checkpoint::Value& epoch : epochs->as_sequence()) counters.epochs.push_back(epoch.as_int());
  return counters;
}

/// Counts the files `custom_checkpoint_<number>.pkl`.
size_t count_custom_files(const fs::path& folder) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    count += name.starts_with("custom_checkpoint_") && name.ends_with(".pkl") ? 1 : 0;
  }
  return count;
}

/// Divides tensors into files of at most `most` bytes; a larger tensor has one of its own.
std::vector<NamedTensors> shards_of(const NamedTensors& tensors, int64_t most) {
  std::vector<NamedTensors> shards(1);
  int64_t bytes = 0;
  for (const NamedTensor& named : tensors) {
    const auto size = static_cast<int64_t>(named.tensor.nbytes());
    if (!shards.back().empty() && bytes + size > most) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(named);
    bytes += size;
  }
  return shards;
}

}  // namespace

std::string Accelerator::save_state(const std::string& output_dir, const SaveOptions& options) {
  if (output_dir.empty() && !project_.automatic_checkpoint_naming)
    raise<UsageError>(
        "save_state() got no folder, expected one, or a project_config with automatic_checkpoint_naming");
  wait_for_everyone();
  const fs::path folder = project_.automatic_checkpoint_naming ? next_checkpoint(project_, is_main_process())
                                                               : fs::path(output_dir);
  wait_for_everyone();
  fs::create_directories(folder);
  // Python takes the rates from the engine's file: those that the program's schedule has set last.
  for (const auto& optimizer : optimizers_) optimizer->pass_rates_on();
  for (size_t i = 0; i < engines_.size(); ++i) {
    SaveOptions of_engine = options;
    of_engine.tag = numbered("pytorch_model", i);
    of_engine.without_waiting_gradients = true;  // as Accelerate does, but with a warning
    engines_[i]->save_checkpoint(folder.string(), of_engine);
  }
  size_t index = 0;
  for (const auto& scheduler : schedulers_) {
    if (scheduler->is_of_engine()) continue;
    const fs::path file = folder / (numbered("scheduler", index++) + ".bin");
    if (writes()) checkpoint::write_torch_archive(file, checkpoint::value_of_json(scheduler->state_dict()));
  }
  std::vector<int64_t> epochs;
  for (const LoaderEpoch& loader : loaders_) epochs.push_back(loader.get());
  write_random_states(random_states_file(folder, process_index()), gradient_state_->step(), epochs);
  for (size_t i = 0; i < customs_.size(); ++i)
    if (writes()) checkpoint::write_torch_archive(custom_file(folder, i), customs_[i].state_dict());
  ++project_.iteration;
  wait_for_everyone();
  return folder.string();
}

void Accelerator::load_state(const std::string& input_dir, const LoadOptions& options) {
  fs::path folder = input_dir;
  if (input_dir.empty()) {
    if (!project_.automatic_checkpoint_naming)
      raise<UsageError>("No input_dir provided and automatic checkpoint naming is disabled.");
    folder = latest_checkpoint(project_);
  }
  if (const auto number = number_of_checkpoint(folder)) project_.iteration = *number + 1;
  if (!fs::is_directory(folder))
    raise<UsageError>("Tried to find ", folder.string(), " but folder does not exist");
  if (const size_t found = count_custom_files(folder); found != customs_.size()) {
    raise<UsageError>("Number of custom checkpoints in folder ", folder.string(),
                      " does not match the number of registered objects:", "\n\tFound checkpoints: ", found,
                      "\n\tRegistered objects: ", customs_.size(),
                      "\nPlease make sure to only load checkpoints from folders that were created with the "
                      "same set of registered ",
                      "objects,or avoid using `custom_checkpoint` in the filename for files in that same "
                      "directory and load them in ",
                      "manually.");
  }
  for (size_t i = 0; i < engines_.size(); ++i) {
    LoadOptions of_engine = options;
    of_engine.tag = numbered("pytorch_model", i);
    engines_[i]->load_checkpoint(folder.string(), of_engine);
  }
  for (const auto& optimizer : optimizers_) optimizer->take_rates();
  size_t index = 0;
  for (const auto& scheduler : schedulers_) {
    if (scheduler->is_of_engine()) continue;
    const fs::path file = folder / (numbered("scheduler", index++) + ".bin");
    scheduler->load_state_dict(checkpoint::json_of_value(checkpoint::read_torch_archive(file)));
  }
  for (const auto& optimizer : optimizers_) optimizer->pass_rates_on();
  const fs::path states = random_states_file(folder, process_index());
  try {
    const Counters counters = read_random_states(states);
    if (counters.step) gradient_state_->set_step(*counters.step);
    if (counters.epochs.size() == loaders_.size())
      for (size_t i = 0; i < loaders_.size(); ++i) loaders_[i].set(counters.epochs[i]);
  } catch (const Error& error) {
    log::warning("[accelerate] Could not load random states: ", error.what());
  }
  for (size_t i = 0; i < customs_.size(); ++i) {
    const checkpoint::Value value = checkpoint::read_torch_archive(custom_file(folder, i));
    customs_[i].load_state_dict(value.as_dict());
  }
}

NamedTensors Accelerator::get_state_dict(const TrainingEngine& engine) const {
  const auto& zero = engine.config().zero_optimization;
  const bool is_partitioned = zero.stage == 3;
  if (is_partitioned && !zero.stage3_gather_16bit_weights_on_model_save) {
    raise<UsageError>(
        "Cannot get 16bit model weights because `stage3_gather_16bit_weights_on_model_save` in DeepSpeed "
        "config is False. To save the ",
        "model weights in 16bit, set `stage3_gather_16bit_weights_on_model_save` to True in DeepSpeed config "
        "file or set ",
        "`zero3_save_16bit_model` to True when using `accelerate config`. To save the full checkpoint, run ",
        "`model.save_checkpoint(save_dir)` and use `zero_to_fp32.py` to recover weights.");
  }
  NamedTensors whole;
  for (const NamedTensor& named : engine.module_state_dict()) {
    const zero::GatheredParameters gathered(is_partitioned ? std::vector<at::Tensor>{named.tensor}
                                                           : std::vector<at::Tensor>());
    if (!is_partitioned || is_main_process())
      whole.push_back({named.name, named.tensor.detach().to(at::kCPU, false, true)});
  }
  return whole;
}

void Accelerator::save_model(const TrainingEngine& engine, const std::string& save_directory,
                             int64_t max_shard_size, bool safe_serialization) const {
  if (max_shard_size < 1)
    raise<UsageError>("max_shard_size is ", max_shard_size, ", expected a number of bytes");
  const NamedTensors tensors = get_state_dict(engine);
  if (!is_main_process()) return;
  const fs::path folder = save_directory;
  fs::create_directories(folder);
  const std::string stem = safe_serialization ? "model" : "pytorch_model";
  const std::string suffix = safe_serialization ? ".safetensors" : ".bin";
  const auto write = [&](const std::string& name, const NamedTensors& part) {
    if (safe_serialization) {
      checkpoint::write_safetensors(folder / name, part);
      return;
    }
    checkpoint::Dict dict(true);
    for (const NamedTensor& named : part) dict.set(named.name, named.tensor);
    checkpoint::write_torch_archive(folder / name, dict);
  };
  const std::vector<NamedTensors> shards = shards_of(tensors, max_shard_size);
  if (shards.size() == 1) {
    write(stem + suffix, tensors);
    return;
  }
  Json map = Json::object();
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    char number[32];
    std::snprintf(number, sizeof(number), "-%05zu-of-%05zu", i + 1, shards.size());
    const std::string name = stem + number + suffix;
    write(name, shards[i]);
    for (const NamedTensor& named : shards[i]) {
      map[named.name] = name;
      total += static_cast<int64_t>(named.tensor.nbytes());
    }
  }
  checkpoint::write_text_atomically(
      folder / (stem + suffix + ".index.json"),
      Json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
}

void Accelerator::save(const checkpoint::Value& value, const std::string& path) const {
  if (writes()) checkpoint::write_torch_archive(path, value);
}

}  // namespace deepspeed::accelerate
