#include "deepspeed/checkpoint/pickle/dict_keys.h"

#include <bit>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/pickle/names/pickle_names.h"

namespace deepspeed::checkpoint {
namespace {

std::string bits_text(double number) {
  return std::to_string(std::bit_cast<uint64_t>(number + 0.0));  // 0.0 and -0.0 are equal
}

std::string bytes_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::optional<std::string> tuple_text(const std::vector<Value>& items) {
  std::string joined = "tuple";
  bool is_known = true;
  for (const Value& item : items) {
    const auto text = key_text(item);
    is_known = is_known && text;
    if (is_known) joined += " " + std::to_string(text->size()) + ":" + *text;
  }
  return is_known ? std::optional(joined) : std::nullopt;
}

}  // namespace

std::optional<std::string> key_text(const Value& key) {
  if (const auto* text = key.get_if<std::string>()) return "text " + *text;
  if (const auto* number = key.get_if<int64_t>()) return message("int ", *number);
  if (const auto* number = key.get_if<double>()) return "float " + bits_text(*number);
  if (const auto* number = key.get_if<std::complex<double>>())
    return "complex " + bits_text(number->real()) + " " + bits_text(number->imag());
  if (const auto* number = key.get_if<BigInt>()) return "big int " + bytes_text(number->bytes);
  if (const auto* flag = key.get_if<bool>()) return message("bool ", *flag);
  if (key.is_none()) return "None";
  if (const auto* bytes = key.get_if<std::vector<uint8_t>>()) return "bytes " + bytes_text(*bytes);
  if (const auto* global = key.get_if<Global>()) return "global " + global->module + "\n" + global->name;
  if (const auto* dtype = key.get_if<DType>()) return "dtype " + std::string(dtype_name(dtype->type));
  if (const auto* tuple = key.get_if<Tuple>()) return tuple_text(tuple->items);
  if (const auto* size = key.get_if<Size>()) return tuple_text({size->dims.begin(), size->dims.end()});
  if (key.get_if<List>() || key.get_if<Dict>() || key.get_if<Set>() || key.get_if<ByteArray>())
    raise<CheckpointError>("a dict has a ", key.kind(), " as a key, which Python cannot hash");
  return std::nullopt;
}

}  // namespace deepspeed::checkpoint
