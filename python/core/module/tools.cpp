// Functions for checkpoint tools.
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"
#include "deepspeed/checkpoint/pickle/value_children.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/objects/values.h"

namespace deepspeed::python {

namespace {

/// Returns the value with all its tensors, also nested ones, on a device.
checkpoint::Value on_device(checkpoint::Value value, const at::Device& device) {
  if (auto* tensor = std::get_if<at::Tensor>(&value.data())) *tensor = tensor->to(device);
  checkpoint::change_children(value,
                              [&](checkpoint::Value& child) { child = on_device(std::move(child), device); });
  return value;
}

py::object read_archive(const std::string& path, const at::Device& device) {
  checkpoint::Value value;
  {
    const py::gil_scoped_release release;
    value = checkpoint::read_torch_archive(path);
    if (!device.is_cpu()) value = on_device(std::move(value), device);
  }
  return from_value_of(path, value);
}

}  // namespace

void bind_tools(py::module_& module) {
  module.def("read_archive", &read_archive, "path"_a, "device"_a);
  module.def(
      "fp32_state_dict",
      [](const std::string& folder, const std::optional<std::string>& tag, bool exclude_frozen_parameters,
         std::optional<int> mp_rank) {
        std::vector<std::pair<std::string, at::Tensor>> tensors;
        for (const NamedTensor& entry : checkpoint::get_fp32_state_dict_from_zero_checkpoint(
                 folder, tag, exclude_frozen_parameters, mp_rank)) {
          tensors.emplace_back(entry.name, entry.tensor);
        }
        return tensors;
      },
      NoGil(), "folder"_a, "tag"_a, "exclude_frozen_parameters"_a, "mp_rank"_a);
  module.def(
      "chosen_tag",
      [](const std::string& folder, const std::optional<std::string>& tag) {
        return checkpoint::chosen_tag(folder, tag);
      },
      NoGil(), "folder"_a, "tag"_a);
  module.def(
      "convert_to_fp32",
      [](const std::string& folder, const std::string& output, const std::string& max_shard_size,
         bool safe_serialization, const std::optional<std::string>& tag, bool exclude_frozen_parameters,
         std::optional<int> mp_rank) {
        checkpoint::ConvertOptions options;
        options.tag = tag;
        options.exclude_frozen_parameters = exclude_frozen_parameters;
        options.safe_serialization = safe_serialization;
        options.max_shard_size = max_shard_size;
        options.mp_rank = mp_rank;
        std::vector<std::string> files;
        for (const auto& path :
             checkpoint::convert_zero_checkpoint_to_fp32_state_dict(folder, output, options))
          files.push_back(path.string());
        return files;
      },
      NoGil(), "folder"_a, "output"_a, "max_shard_size"_a, "safe_serialization"_a, "tag"_a,
      "exclude_frozen_parameters"_a, "mp_rank"_a);
  module.def(
      "convert_to_universal",
      [](const std::string& input_folder, const std::string& output_folder, int num_workers, bool strict) {
        checkpoint::UniversalOptions options;
        options.num_workers = num_workers;
        options.strict = strict;
        checkpoint::convert_to_universal(input_folder, output_folder, options);
      },
      NoGil(), "input_folder"_a, "output_folder"_a, "num_workers"_a, "strict"_a);
}

}  // namespace deepspeed::python
