#include <initializer_list>
#include <utility>

#include "deepspeed/config/later_sections.h"

namespace deepspeed::config {
namespace {

/// A technique: its shared parameters, and groups of modules by name.
Field technique(const char* key, const char* meaning, std::initializer_list<Field> shared) {
  std::vector<Field> parameters = {enabled_switch()};
  parameters.insert(parameters.end(), shared);
  return section(key, meaning,
                 {
                     section("shared_parameters", "For all groups.", std::move(parameters)),
                     object("different_groups", nullptr, "By name: params, modules, related_modules."),
                 });
}

Field offset(int default_value) {
  return integer("schedule_offset", default_value, "The step it begins at.", {at_least(0)});
}

Field quantization_type() {
  return text("quantization_type", "symmetric", "How zero is placed.", {one_of({"symmetric", "asymmetric"})});
}

Field method(const char* default_value, std::vector<std::string> choices) {
  return text("method", default_value, "How weights are chosen.", {one_of(std::move(choices))});
}

Field weight_technique() {
  return technique(
      "weight_quantization", "Weights of few bits.",
      {
          boolean("quantizer_kernel", false, "Use the kernel."),
          offset(0),
          integer("quantize_groups", 1, "Groups with a scale of their own.", {at_least(1)}),
          boolean("quantize_verbose", false, "Log it."),
          quantization_type(),
          boolean("quantize_weight_in_forward", false, "In forward, not in the step."),
          text("rounding", "nearest", "How it rounds.", {one_of({"nearest", "stochastic"})}),
          section("fp16_mixed_quantize", "A mix with float16.",
                  {enabled_switch(), number("quantize_change_ratio", 0.001, "How fast the mix changes.")}),
      });
}

Field activation_technique() {
  return technique(
      "activation_quantization", "Activations of few bits.",
      {
          quantization_type(),
          text("range_calibration", "dynamic", "When the range is found.", {one_of({"dynamic", "static"})}),
          offset(1000),
      });
}

Field sparse_technique() {
  return technique("sparse_pruning", "Single weights set to zero.",
                   {
                       method("l1", {"l1", "topk", "snip_momentum"}),
                       offset(1000),
                       text("block_pattern", "4x1", "The blocks that go together."),
                       number("dense_ratio", 0.1, "The part that stays.", {strictly_between(0, 1)}),
                       integer("schedule_offset_stride", 1, "Steps between two prunings.", {at_least(1)}),
                       integer("schedule_offset_end", nullptr, "The step it ends at; null: where it begins."),
                       strings("excluded_modules", Json::array(), "Modules left as they are."),
                   });
}

Field layer_reduction() {
  return section("layer_reduction", "A student of fewer layers.",
                 {
                     enabled_switch(),
                     integer("keep_number_layer", nullptr, "Layers of the student.", {at_least(1)}),
                     text("module_name_prefix", nullptr, "Where the layers are."),
                     integers("teacher_layer", nullptr, "The teacher's layers that it begins with."),
                     strings("other_module_name", nullptr, "Further modules that it takes over."),
                 });
}

Field compression_training() {
  return section(
      "compression_training", "Training for a smaller model.",
      {
          layer_reduction(),
          weight_technique(),
          activation_technique(),
          sparse_technique(),
          technique("row_pruning", "Rows set to zero.", {method("l1", {"l1", "topk"}), offset(1000)}),
          technique("head_pruning", "Attention heads set to zero.",
                    {method("topk", {"topk", "l1"}), offset(1000),
                     integer("num_heads", nullptr, "Heads of a layer.")}),
          technique("channel_pruning", "Channels set to zero.", {method("l1", {"l1", "topk"}), offset(1000)}),
      });
}

/// The section is on unless it says otherwise, so a section that is silent on it counts as on.
Json with_switch(const Json& given) {
  Json section = given;
  if (section.is_object() && !section.contains("enabled")) section["enabled"] = true;
  return section;
}

Field weight_quantization() {
  return section(
      "weight_quantization", "Weights of 4 or 8 bits in inference.",
      {
          boolean("enabled", true, "Turns the section on.", {only({false})}),
          integer("num_bits", 8, "Bits of a weight."),
          any("q_type", nullptr, "How zero is placed."),
          integer("q_groups", 1, "Groups with a scale of their own.", {at_least(1)}),
          object("quantized_initialization", Json::object(), "Quantise while the model is made."),
          object("post_init_quant", Json::object(), "By layer: num_bits, group_size, group_dim, symmetric."),
      },
      {auto_means_default(), normalized_by(with_switch)});
}

}  // namespace

std::vector<Field> later_compression_sections() { return {compression_training(), weight_quantization()}; }

}  // namespace deepspeed::config
