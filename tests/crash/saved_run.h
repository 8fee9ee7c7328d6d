// Small engines that save and load, for the tests of this folder.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include <ATen/ops/full.h>

#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/engine/make_engine.h"

namespace deepspeed::testing {

/// OddNet with a parameter that is large enough to stay in the file until it is asked for.
class WideNet : public OddNet {
 public:
  WideNet() { register_parameter("wide", at::full({30'000}, 0.5)); }
};

inline auto make_saved_run(const comm::World& world, Json patch = Json::object(), int stage = 1) {
  Json config = basic({{"zero_optimization", {{"stage", stage}}}, {"log_level", "off"}});
  config.merge_patch(patch);
  return initialize(std::make_shared<WideNet>(), {.config = config, .world = world}).engine;
}

/// Everything that this rank has to get back, as bytes.
template <class Engine>
std::string content_of(Engine& engine) {
  std::string bytes = std::to_string(engine.global_steps());
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor values = tensor.detach().contiguous();
    bytes.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  };
  for (const at::Tensor& param : engine.module().parameters()) {
    if (!zero::is_partitioned(param)) add(param);
  }
  for (const at::Tensor& buffer : engine.module().buffers()) add(buffer);
  add(engine.optimizer()->state().master(0));
  const auto state = engine.optimizer()->base_optimizer().state(0);
  bytes += std::to_string(state.step);
  for (const auto& [name, tensor] : state.tensors) add(tensor);
  return bytes;
}

/// The names in a folder, but for the script that ZeRO puts beside `latest`, and for the list of who saves
/// there.
inline std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  names.erase("zero_to_fp32.py");
  names.erase(".writers");
  return names;
}

/// Returns the folder's names at one moment for all ranks: no rank goes on before all have looked.
inline std::set<std::string> names_in(comm::World& world, const std::filesystem::path& folder) {
  world.group().all_gather_text("");
  std::set<std::string> names = names_in(folder);
  world.group().all_gather_text("");
  return names;
}

/// Runs `change` on rank 0 while the others wait.
template <class Change>
void on_rank_0(comm::World& world, const Change& change) {
  world.group().all_gather_text("");
  if (world.rank() == 0) change();
  world.group().all_gather_text("");
}

}  // namespace deepspeed::testing
