#include "deepspeed/checkpoint/convert/zero_to_fp32.h"

#include <unordered_map>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/sources/fp32_source.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/tag_name.h"

namespace deepspeed::checkpoint {

std::string chosen_tag(const std::filesystem::path& dir, const std::optional<std::string>& tag) {
  const std::optional<std::string> chosen = tag ? tag : read_latest(dir);
  if (chosen) require_tag_inside(*chosen);
  if (chosen) return *chosen;
  raise<CheckpointError>("there is no file ", latest_path(dir), "; name the tag to read");
}

NamedTensors get_fp32_state_dict_from_zero_checkpoint(const std::filesystem::path& dir,
                                                      const std::optional<std::string>& tag,
                                                      bool exclude_frozen_parameters,
                                                      std::optional<int> mp_rank) {
  const Fp32Source source(dir, chosen_tag(dir, tag),
                          {.exclude_frozen_parameters = exclude_frozen_parameters, .mp_rank = mp_rank});
  std::unordered_map<const void*, at::Tensor> loaded;  // aliases share their tensor
  NamedTensors weights;
  for (const auto& [name, weight] : source.weights()) {
    at::Tensor& data = loaded[weight.unsafeGetTensorImpl()];
    if (!data.defined()) data = source.load(weight);
    weights.emplace_back(name, data);
  }
  source.check_rest();
  return weights;
}

}  // namespace deepspeed::checkpoint
