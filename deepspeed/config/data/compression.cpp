#include "deepspeed/config/data/tables.h"

namespace deepspeed::config {
namespace {

constexpr const char* kSwitch = "Turns the section on.";
constexpr const char* kOffset = "The step it begins at.";
constexpr const char* kMethod = "How weights are chosen.";
constexpr const char* kZero = "How zero is placed.";

const Table<LayerReductionConfig>& layer_reduction_table() {
  using C = LayerReductionConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, kSwitch, {not_yet()}),
      entry("keep_number_layer", &C::keep_number_layer, "Layers of the student.", {at_least(1)}),
      entry("module_name_prefix", &C::module_name_prefix, "Where the layers are."),
      entry("teacher_layer", &C::teacher_layer, "The teacher's layers that it begins with."),
      entry("other_module_name", &C::other_module_name, "Further modules that it takes over."),
  });
  return table;
}

const Table<Fp16MixedQuantizeConfig>& fp16_mixed_quantize_table() {
  using C = Fp16MixedQuantizeConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, kSwitch, {not_yet()}),
      entry("quantize_change_ratio", &C::quantize_change_ratio, "How fast the mix changes."),
  });
  return table;
}

const Table<WeightTechniqueConfig>& weight_table() {
  using C = WeightTechniqueConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, kSwitch, {not_yet()}),
      entry("quantizer_kernel", &C::quantizer_kernel, "Use the kernel."),
      entry("schedule_offset", &C::schedule_offset, kOffset, {at_least(0)}),
      entry("quantize_groups", &C::quantize_groups, "Groups with a scale of their own.", {at_least(1)}),
      entry("quantize_verbose", &C::quantize_verbose, "Log it."),
      entry("quantization_type", &C::quantization_type, kZero, {one_of({"symmetric", "asymmetric"})}),
      entry("quantize_weight_in_forward", &C::quantize_weight_in_forward, "In forward, not in the step."),
      entry("rounding", &C::rounding, "How it rounds.", {one_of({"nearest", "stochastic"})}),
      section_entry("fp16_mixed_quantize", &C::fp16_mixed_quantize, fp16_mixed_quantize_table(),
                    "A mix with float16."),
  });
  return table;
}

const Table<ActivationTechniqueConfig>& activation_table() {
  using C = ActivationTechniqueConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, kSwitch, {not_yet()}),
      entry("quantization_type", &C::quantization_type, kZero, {one_of({"symmetric", "asymmetric"})}),
      entry("range_calibration", &C::range_calibration, "When the range is found.",
            {one_of({"dynamic", "static"})}),
      entry("schedule_offset", &C::schedule_offset, kOffset, {at_least(0)}),
  });
  return table;
}

const Table<SparseTechniqueConfig>& sparse_table() {
  using C = SparseTechniqueConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, kSwitch, {not_yet()}),
      entry("method", &C::method, kMethod, {one_of({"l1", "topk", "snip_momentum"})}),
      entry("schedule_offset", &C::schedule_offset, kOffset, {at_least(0)}),
      entry("block_pattern", &C::block_pattern, "The blocks that go together."),
      entry("dense_ratio", &C::dense_ratio, "The part that stays.", {strictly_between(0, 1)}),
      entry("schedule_offset_stride", &C::schedule_offset_stride, "Steps between two prunings.",
            {at_least(1)}),
      entry("schedule_offset_end", &C::schedule_offset_end, "The step it ends at; null: where it begins."),
      entry("excluded_modules", &C::excluded_modules, "Modules left as they are."),
  });
  return table;
}

const Table<PruningTechniqueConfig>& pruning_table() {
  using C = PruningTechniqueConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, kSwitch, {not_yet()}),
      entry("method", &C::method, kMethod, {one_of({"l1", "topk"})}),
      entry("schedule_offset", &C::schedule_offset, kOffset, {at_least(0)}),
  });
  return table;
}

const Table<HeadTechniqueConfig>& head_table() {
  using C = HeadTechniqueConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, kSwitch, {not_yet()}),
      entry("method", &C::method, kMethod, {one_of({"topk", "l1"})}),
      entry("schedule_offset", &C::schedule_offset, kOffset, {at_least(0)}),
      entry("num_heads", &C::num_heads, "Heads of a layer."),
  });
  return table;
}

/// Makes the table of a technique from the table of what its groups share.
template <class Shared>
Table<TechniqueConfig<Shared>> technique(const Table<Shared>& shared) {
  using C = TechniqueConfig<Shared>;
  return Table<C>({
      section_entry("shared_parameters", &C::shared_parameters, shared, "For all groups."),
      entry("different_groups", &C::different_groups, "By name: params, modules, related_modules."),
  });
}

}  // namespace

const Table<CompressionTrainingConfig>& compression_training_table() {
  using C = CompressionTrainingConfig;
  static const auto weights = technique(weight_table());
  static const auto activations = technique(activation_table());
  static const auto sparse = technique(sparse_table());
  static const auto pruning = technique(pruning_table());
  static const auto heads = technique(head_table());
  static const Table<C> table({
      section_entry("layer_reduction", &C::layer_reduction, layer_reduction_table(),
                    "A student of fewer layers."),
      section_entry("weight_quantization", &C::weight_quantization, weights, "Weights of few bits."),
      section_entry("activation_quantization", &C::activation_quantization, activations,
                    "Activations of few bits."),
      section_entry("sparse_pruning", &C::sparse_pruning, sparse, "Single weights set to zero."),
      section_entry("row_pruning", &C::row_pruning, pruning, "Rows set to zero."),
      section_entry("head_pruning", &C::head_pruning, heads, "Attention heads set to zero."),
      section_entry("channel_pruning", &C::channel_pruning, pruning, "Channels set to zero."),
  });
  return table;
}

const Table<WeightQuantizationConfig>& weight_quantization_table() {
  using C = WeightQuantizationConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, kSwitch, {only({false})}),
      entry("num_bits", &C::num_bits, "Bits of a weight."),
      any_entry("q_type", &C::q_type, kZero),
      entry("q_groups", &C::q_groups, "Groups with a scale of their own.", {at_least(1)}),
      entry("quantized_initialization", &C::quantized_initialization, "Quantise while the model is made."),
      entry("post_init_quant", &C::post_init_quant, "By layer: num_bits, group_size, group_dim, symmetric."),
  });
  return table;
}

Json with_switch(const Json& given) {
  Json section = given;
  if (section.is_object() && !section.contains("enabled")) section["enabled"] = true;
  return section;
}

}  // namespace deepspeed::config
