#include "deepspeed/config/later_sections.h"

#include <utility>

namespace deepspeed::config {

Field enabled_switch() { return boolean("enabled", false, "Turns the section on.", {not_yet()}); }

std::vector<Field> later_precision_sections() {
  const auto dtypes = one_of({"fp16", "float16", "half", "torch.float16", "fp32", "float32", "float",
                              "torch.float32", "bf16", "bfloat16", "torch.bfloat16"});
  return {
      section("data_types", "The types of tensors.",
              {
                  text("grad_accum_dtype", nullptr, "Of accumulated gradients; null: the model's.",
                       {dtypes, not_yet()}),
                  text("param_dtype", nullptr, "Of parameters, as fp16 and bf16 say it.", {dtypes}),
                  text("buffer_dtype", nullptr, "Of floating-point buffers; null: as they are.",
                       {dtypes, not_yet()}),
              }),
      section("amp", "Apex's mixed precision; its further keys are its arguments.",
              {boolean("enabled", false, "Turns the section on.", {required(), not_yet()})},
              {keeps_unknown_keys()}),
      section("torch_autocast", "PyTorch's mixed precision.",
              {
                  enabled_switch(),
                  text("dtype", nullptr, "The lower precision.", {dtypes}),
                  strings("lower_precision_safe_modules", nullptr, "Classes of modules that run in it."),
              }),
  };
}

std::vector<Field> later_sections() {
  std::vector<Field> all;
  for (auto* part : {later_precision_sections, later_monitor_sections, later_parallel_sections,
                     later_training_sections, later_compression_sections}) {
    for (Field& field : part()) all.push_back(std::move(field));
  }
  return all;
}

}  // namespace deepspeed::config
