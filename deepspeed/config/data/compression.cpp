#include <utility>

#include "deepspeed/config/data/keys.h"

namespace deepspeed::config {
namespace {

constexpr const char* kSwitch = "Turns the section on.";
constexpr const char* kOffset = "The step it begins at.";
constexpr const char* kMethod = "How weights are chosen.";
constexpr const char* kZero = "How zero is placed.";

std::vector<Field> layer_reduction_keys() {
  return {
      boolean("enabled", false, kSwitch, {not_yet()}),
      integer("keep_number_layer", nullptr, "Layers of the student.", {at_least(1)}),
      text("module_name_prefix", nullptr, "Where the layers are."),
      integers("teacher_layer", nullptr, "The teacher's layers that it begins with."),
      texts("other_module_name", nullptr, "Further modules that it takes over."),
  };
}

std::vector<Field> fp16_mixed_quantize_keys() {
  return {
      boolean("enabled", false, kSwitch, {not_yet()}),
      number("quantize_change_ratio", 0.001, "How fast the mix changes."),
  };
}

std::vector<Field> weight_keys() {
  return {
      boolean("enabled", false, kSwitch, {not_yet()}),
      boolean("quantizer_kernel", false, "Use the kernel."),
      integer("schedule_offset", 0, kOffset, {at_least(0)}),
      integer("quantize_groups", 1, "Groups with a scale of their own.", {at_least(1)}),
      boolean("quantize_verbose", false, "Log it."),
      text("quantization_type", "symmetric", kZero, {one_of({"symmetric", "asymmetric"})}),
      boolean("quantize_weight_in_forward", false, "In forward, not in the step."),
      text("rounding", "nearest", "How it rounds.", {one_of({"nearest", "stochastic"})}),
      section("fp16_mixed_quantize", "A mix with float16.", fp16_mixed_quantize_keys()),
  };
}

std::vector<Field> activation_keys() {
  return {
      boolean("enabled", false, kSwitch, {not_yet()}),
      text("quantization_type", "symmetric", kZero, {one_of({"symmetric", "asymmetric"})}),
      text("range_calibration", "dynamic", "When the range is found.", {one_of({"dynamic", "static"})}),
      integer("schedule_offset", 1000, kOffset, {at_least(0)}),
  };
}

std::vector<Field> sparse_keys() {
  return {
      boolean("enabled", false, kSwitch, {not_yet()}),
      text("method", "l1", kMethod, {one_of({"l1", "topk", "snip_momentum"})}),
      integer("schedule_offset", 1000, kOffset, {at_least(0)}),
      text("block_pattern", "4x1", "The blocks that go together."),
      number("dense_ratio", 0.1, "The part that stays.", {strictly_between(0, 1)}),
      integer("schedule_offset_stride", 1, "Steps between two prunings.", {at_least(1)}),
      integer("schedule_offset_end", nullptr, "The step it ends at; null: where it begins."),
      texts("excluded_modules", Json::array(), "Modules left as they are."),
  };
}

std::vector<Field> pruning_keys() {
  return {
      boolean("enabled", false, kSwitch, {not_yet()}),
      text("method", "l1", kMethod, {one_of({"l1", "topk"})}),
      integer("schedule_offset", 1000, kOffset, {at_least(0)}),
  };
}

std::vector<Field> head_keys() {
  return {
      boolean("enabled", false, kSwitch, {not_yet()}),
      text("method", "topk", kMethod, {one_of({"topk", "l1"})}),
      integer("schedule_offset", 1000, kOffset, {at_least(0)}),
      integer("num_heads", nullptr, "Heads of a layer."),
  };
}

/// Returns the keys of a compression technique. `shared` are the keys common to its parameter groups.
std::vector<Field> technique(std::vector<Field> shared) {
  return {
      section("shared_parameters", "For all groups.", std::move(shared)),
      object("different_groups", nullptr, "By name: params, modules, related_modules."),
  };
}

}  // namespace

std::vector<Field> compression_training_keys() {
  return {
      section("layer_reduction", "A student of fewer layers.", layer_reduction_keys()),
      section("weight_quantization", "Weights of few bits.", technique(weight_keys())),
      section("activation_quantization", "Activations of few bits.", technique(activation_keys())),
      section("sparse_pruning", "Single weights set to zero.", technique(sparse_keys())),
      section("row_pruning", "Rows set to zero.", technique(pruning_keys())),
      section("head_pruning", "Attention heads set to zero.", technique(head_keys())),
      section("channel_pruning", "Channels set to zero.", technique(pruning_keys())),
  };
}

std::vector<Field> weight_quantization_keys() {
  return {
      boolean("enabled", true, kSwitch, {only({false})}),
      integer("num_bits", 8, "Bits of a weight."),
      any("q_type", nullptr, kZero),
      integer("q_groups", 1, "Groups with a scale of their own.", {at_least(1)}),
      object("quantized_initialization", Json::object(), "Quantise while the model is made."),
      object("post_init_quant", Json::object(), "By layer: num_bits, group_size, group_dim, symmetric."),
  };
}

Json with_switch(const Json& given) {
  Json section = given;
  if (section.is_object() && !section.contains("enabled")) section["enabled"] = true;
  return section;
}

}  // namespace deepspeed::config
