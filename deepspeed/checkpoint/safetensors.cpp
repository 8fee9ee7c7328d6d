#include "deepspeed/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/atomic_file.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kSafetensorsWhere = "checkpoint.safetensors";
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own bound

struct TypeName {
  at::ScalarType type;
  std::string_view name;
};
constexpr auto kSafetensorsTypes = std::to_array<TypeName>({{at::kFloat, "F32"},
                                                            {at::kDouble, "F64"},
                                                            {at::kHalf, "F16"},
                                                            {at::kBFloat16, "BF16"},
                                                            {at::kLong, "I64"},
                                                            {at::kInt, "I32"},
                                                            {at::kShort, "I16"},
                                                            {at::kChar, "I8"},
                                                            {at::kByte, "U8"},
                                                            {at::kBool, "BOOL"},
                                                            {at::kUInt16, "U16"},
                                                            {at::kUInt32, "U32"},
                                                            {at::kUInt64, "U64"},
                                                            {at::kFloat8_e4m3fn, "F8_E4M3"},
                                                            {at::kFloat8_e5m2, "F8_E5M2"}});

std::string header_of(const NamedTensors& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto* type = std::ranges::find(kSafetensorsTypes, tensor.scalar_type(), &TypeName::type);
    if (type == kSafetensorsTypes.end()) {
      raise<UsageError>(kSafetensorsWhere, "'", name, "' has the dtype ", at::toString(tensor.scalar_type()),
                        ", which safetensors cannot hold");
    }
    const uint64_t end = offset + tensor.nbytes();
    header[name] = {{"dtype", type->name}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data starts on a multiple of 8
  return text;
}

struct Entry {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> sizes;
  uint64_t begin;
  uint64_t end;
};

/// Throws nlohmann's or our own error where an entry is not as the format demands.
Entry parse_entry(const std::string& name, const Json& json, uint64_t data_bytes) {
  const auto type_name = json.at("dtype").get<std::string>();
  const auto* type = std::ranges::find(kSafetensorsTypes, std::string_view(type_name), &TypeName::name);
  if (type == kSafetensorsTypes.end())
    raise<CheckpointError>(kSafetensorsWhere, "'", name, "' has the unknown dtype ", type_name);
  Entry entry{name, type->type, json.at("shape").get<std::vector<int64_t>>(),
              json.at("data_offsets").at(0).get<uint64_t>(), json.at("data_offsets").at(1).get<uint64_t>()};
  int64_t num_bytes = int64_t(c10::elementSize(entry.type));
  bool possible = entry.begin <= entry.end && entry.end <= data_bytes && entry.sizes.size() <= 64;
  for (const int64_t size : entry.sizes) {
    possible = possible && size >= 0 && !__builtin_mul_overflow(num_bytes, size, &num_bytes);
  }
  if (!possible || uint64_t(num_bytes) != entry.end - entry.begin) {
    raise<CheckpointError>(kSafetensorsWhere, "the sizes and offsets of '", name,
                           "' do not fit together or the file");
  }
  return entry;
}

std::vector<Entry> read_entries(std::ifstream& file, uint64_t file_size, uint64_t& data_offset) {
  uint64_t header_size = 0;
  file.read(reinterpret_cast<char*>(&header_size), 8);
  if (!file || header_size > kMaxHeaderBytes || header_size > file_size - 8) {
    raise<CheckpointError>(kSafetensorsWhere, "the header is torn");
  }
  std::string text(header_size, '\0');
  file.read(text.data(), std::streamsize(header_size));
  data_offset = 8 + header_size;
  std::vector<Entry> entries;
  uint64_t total_bytes = 0;
  const Json header = Json::parse(text);
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") continue;
    entries.push_back(parse_entry(name, json, file_size - data_offset));
    total_bytes += entries.back().end - entries.back().begin;
    if (total_bytes > file_size) raise<CheckpointError>(kSafetensorsWhere, "tensors overlap");
  }
  std::ranges::stable_sort(entries, {}, &Entry::begin);
  return entries;
}

}  // namespace

FileSums write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                           const TensorProvider& provide) {
  const std::string header = header_of(tensors);
  const uint64_t header_size = header.size();
  AtomicFile file(path);
  uint64_t num_bytes = sizeof(header_size) + header_size;
  for (const auto& [name, tensor] : tensors) num_bytes += tensor.nbytes();
  file.reserve(num_bytes);
  file.write(&header_size, sizeof(header_size));
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor data =
        (tensor.is_meta() && provide ? provide(tensor) : tensor.detach().cpu()).contiguous();
    file.write(data.const_data_ptr(), data.nbytes());
  }
  return file.commit();
}

NamedTensors read_safetensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) raise<IoError>(kSafetensorsWhere, "cannot open ", path, ": ", std::strerror(errno));
  try {
    const uint64_t file_size = std::filesystem::file_size(path);
    if (file_size < 8) raise<CheckpointError>(kSafetensorsWhere, "the header is torn");
    uint64_t data_offset = 0;
    NamedTensors tensors;
    for (const Entry& entry : read_entries(file, file_size, data_offset)) {
      at::Tensor tensor = at::empty(entry.sizes, at::TensorOptions().dtype(entry.type));
      file.seekg(std::streamoff(data_offset + entry.begin));
      if (tensor.numel() > 0) {
        file.read(static_cast<char*>(tensor.mutable_data_ptr()), std::streamsize(tensor.nbytes()));
      }
      if (!file) raise<CheckpointError>(kSafetensorsWhere, "the data of '", entry.name, "' is torn");
      tensors.emplace_back(entry.name, std::move(tensor));
    }
    return tensors;
  } catch (const Json::exception& error) {
    raise<CheckpointError>(kSafetensorsWhere, "cannot read ", path,
                           ": its header is altered: ", error.what());
  } catch (const CheckpointError& error) {
    raise<CheckpointError>(kSafetensorsWhere, "cannot read ", path, ": ", error.what());
  }
}

}  // namespace deepspeed::checkpoint
