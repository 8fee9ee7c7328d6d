#include "tests/support/bf16_optimizer.h"

#include <string>

#include <ATen/ops/constant_pad_nd.h>

#include "deepspeed/checkpoint/archive/torch_archive.h"

namespace deepspeed::testing {

namespace fs = std::filesystem;
using checkpoint::Dict;
using checkpoint::List;
using checkpoint::Value;

void drop(Dict& dict, const std::string& key) {
  std::erase_if(dict.items(), [&](const auto& item) { return item.first.as_string() == key; });
}

Value in_bf16_optimizer_form(const Value& file) {
  Dict content = file.as_dict();
  Dict optimizer = content.at("optimizer_state_dict").as_dict();
  List padded;
  const auto& partitions = optimizer.at("single_partition_of_fp32_groups").as_sequence();
  for (size_t group = 0; group < partitions.size(); ++group) {
    const int64_t padding = optimizer.at("group_paddings").as_sequence()[group].as_int();
    padded.emplace_back(at::constant_pad_nd(partitions[group].as_tensor(), {0, padding}));
  }
  optimizer.set("single_partition_of_fp32_groups", std::move(padded));
  for (const char* key : {"zero_stage", "loss_scaler", "dynamic_loss_scale", "overflow"})
    drop(optimizer, key);
  content.set("optimizer_state_dict", std::move(optimizer));
  return content;
}

void make_bf16_optimizer_form(const fs::path& tag, bool has_zero) {
  fs::remove(tag / "manifest.json");
  for (const auto& entry : fs::directory_iterator(tag)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("rng_states")) fs::remove(entry.path());
    if (name.starts_with("layer_") || name.starts_with("mp_rank"))  // without the mark of our saves
      checkpoint::write_torch_archive(entry.path(), checkpoint::read_torch_archive(entry.path()));
    if (!name.starts_with("bf16_zero_pp_rank_")) continue;
    const Value optimizer = in_bf16_optimizer_form(checkpoint::read_torch_archive(entry.path()));
    checkpoint::write_torch_archive(entry.path(), optimizer);
    const std::string of_first = "bf16_zero_pp_rank_0_", end = "optim_states.pt";
    if (has_zero || !name.starts_with(of_first)) continue;
    const size_t place_size = name.size() - of_first.size() - end.size();
    const fs::path model_file = tag / (name.substr(of_first.size(), place_size) + "model_states.pt");
    Dict model = checkpoint::read_torch_archive(model_file).as_dict();
    model.set("param_shapes", checkpoint::None());
    model.set("shared_params", checkpoint::None());
    model.set("optimizer", optimizer.as_dict().at("optimizer_state_dict"));
    checkpoint::write_torch_archive(model_file, model);
  }
}

}  // namespace deepspeed::testing
