// The config of a transformer layer is a table (config/table): its rows give reading, ranges, help and JSON.
// Values that contradict each other are found after all were read.
#include "deepspeed/ops/transformer/transformer_config.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/config/table/coerce.h"
#include "deepspeed/config/table/read.h"
#include "deepspeed/config/table/table.h"

namespace deepspeed::ops {
namespace {

using Config = DeepSpeedTransformerConfig;

config::Option positive_or_unset() {
  return config::accepted_if(
      [](const Json& value) {
        const auto number = config::as_int(value);
        return number && (*number > 0 || *number == -1);
      },
      "above 0, or -1");
}

config::Option ratio_or_unset() {
  return config::accepted_if(
      [](const Json& value) {
        const auto ratio = config::as_float(value);
        return ratio && ((*ratio >= 0 && *ratio <= 1) || *ratio == -1);
      },
      "from 0 to 1, or -1");
}

/// Returns an option that reads null as -1. Scripts that do not number layers pass null.
config::Option null_is_unset() {
  return config::normalized_by([](const Json& value) { return value.is_null() ? Json(-1) : value; });
}

const config::Table<Config>& layer_table() {
  using config::at_least;
  using config::entry;
  static const config::Table<Config> table({
      entry("batch_size", &Config::batch_size, "The most sequences of a forward; -1: any number.",
            {positive_or_unset()}),
      entry("hidden_size", &Config::hidden_size, "H, a multiple of heads.", {at_least(1)}),
      entry("intermediate_size", &Config::intermediate_size, "I; -1: 4 H.", {positive_or_unset()}),
      entry("heads", &Config::heads, "The number of heads.", {at_least(1)}),
      entry("attn_dropout_ratio", &Config::attn_dropout_ratio,
            "The dropout of the attention's probabilities; -1: none.", {ratio_or_unset()}),
      entry("hidden_dropout_ratio", &Config::hidden_dropout_ratio,
            "The dropout of both outputs that are added to a residual; -1: none.", {ratio_or_unset()}),
      entry("num_hidden_layers", &Config::num_hidden_layers,
            "The layers of the model, for adjust_init_range."),
      entry("initializer_range", &Config::initializer_range, "The standard deviation of new matrices."),
      entry("layer_norm_eps", &Config::layer_norm_eps, "Is added to variances.", {at_least(0)}),
      entry("local_rank", &Config::local_rank, "The CUDA device that becomes the current one; -1: leaves it.",
            {at_least(-1)}),
      entry("seed", &Config::seed,
            "The seed of dropout's masks; torch's generator gives their offsets, and with -1 the seed too.",
            {at_least(-1)}),
      entry("fp16", &Config::fp16, "Refuses hidden states of another dtype than float16."),
      entry("pre_layer_norm", &Config::pre_layer_norm,
            "Normalizes the inputs of the two blocks, otherwise their sums."),
      entry("normalize_invertible", &Config::normalize_invertible,
            "Keeps only the outputs of the layer norms: no weight of a norm may be 0."),
      entry("gelu_checkpoint", &Config::gelu_checkpoint, "Backward computes the GELU again."),
      entry("adjust_init_range", &Config::adjust_init_range,
            "Draws attn_ow and output_w with initializer_range / sqrt(2 num_hidden_layers)."),
      entry("attn_dropout_checkpoint", &Config::attn_dropout_checkpoint,
            "Backward drops the probabilities again."),
      entry("stochastic_mode", &Config::stochastic_mode,
            "Permits results that differ by run; they are equal all the same."),
      entry("return_tuple", &Config::return_tuple, "Only Python: forward returns a tuple of one."),
      entry("training", &Config::training, "False leaves dropout out, as eval() does."),
      entry("huggingface", &Config::huggingface, "The older name of return_tuple."),
      entry("layer_id", &Config::layer_id, "Errors name the layer by it; -1: layers count themselves.",
            {null_is_unset()}),
      entry("test_gemm", &Config::test_gemm, "Must be false: libraries choose how they multiply matrices."),
      entry("is_grad_enabled", &Config::is_grad_enabled, "False: forward keeps nothing for a backward."),
  });
  return table;
}

/// Returns the config of these keys, as layer_table() reads them.
Config read_layer(const Json& keys) {
  static const config::Field section = config::section("", "", layer_table().fields());
  Config read;
  layer_table().assign(read, config::read_section(section, keys, ""));
  return read;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) raise<IoError>(path.string(), ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Parses UTF-16. The byte order mark tells the byte order. Without a mark, the position of the first null
/// byte tells it.
Json parse_utf16(const std::string& bytes, const std::string& path) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const bool has_mark = (byte(0) == 0xff && byte(1) == 0xfe) || (byte(0) == 0xfe && byte(1) == 0xff);
  const bool big = has_mark ? byte(0) == 0xfe : byte(0) == 0;
  std::u16string text;
  for (size_t i = has_mark ? 2 : 0; i + 1 < bytes.size(); i += 2) {
    text.push_back(static_cast<char16_t>(big ? byte(i) << 8 | byte(i + 1) : byte(i + 1) << 8 | byte(i)));
  }
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    raise<ConfigError>(path, ": ", error.what());
  }
}

bool is_utf16(const std::string& bytes) {
  if (bytes.size() < 2) return false;
  const auto first = static_cast<unsigned char>(bytes[0]), second = static_cast<unsigned char>(bytes[1]);
  return (first == 0xff && second == 0xfe) || (first == 0xfe && second == 0xff) || first == 0 || second == 0;
}

}  // namespace

Config Config::from_dict(const Json& keys) {
  if (!keys.is_object())
    raise<ConfigError>("a transformer layer: got ", json_excerpt(keys), ", expected a JSON object");
  return read_layer(keys);
}

Config Config::from_json_file(const std::filesystem::path& path) {
  const std::string bytes = bytes_of(path);
  return from_dict(is_utf16(bytes) ? parse_utf16(bytes, path.string()) : parse_json(bytes, path.string()));
}

Json Config::to_dict() const { return layer_table().to_json(*this); }

Config Config::checked() const {
  Config config = read_layer(to_dict());
  if (hidden_size % heads != 0)
    raise<ConfigError>("hidden_size: got ", hidden_size, ", expected a multiple of heads, ", heads);
  if (test_gemm) {
    raise<NotSupportedError>(
        "test_gemm is not supported: cuBLAS and oneDNN choose how they multiply matrices; leave it out");
  }
  if (intermediate_size == -1) config.intermediate_size = 4 * hidden_size;
  config.attn_dropout_ratio = std::max(attn_dropout_ratio, 0.0);
  config.hidden_dropout_ratio = std::max(hidden_dropout_ratio, 0.0);
  config.return_tuple = return_tuple || huggingface;
  return config;
}

}  // namespace deepspeed::ops
