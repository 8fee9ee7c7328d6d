#include "deepspeed/checkpoint/archive/safetensors_file.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/checkpoint/archive/safetensors.h"
#include "deepspeed/checkpoint/archive/safetensors_types.h"

namespace deepspeed::checkpoint {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxSafetensorsDims = 64;

struct SafetensorsEntry {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> sizes;
  uint64_t begin;  // within the data
  uint64_t end;
};

/// Parses the header's entry of one tensor. `data_bytes` is the size of all data in the file. Throws
/// nlohmann's or our own error if the entry violates the format.
SafetensorsEntry parse_safetensors_entry(const std::string& name, const Json& json, uint64_t data_bytes) {
  const auto type_name = json.at("dtype").get<std::string>();
  const auto* type =
      std::ranges::find(kSafetensorsTypes, std::string_view(type_name), &SafetensorsType::name);
  if (type == kSafetensorsTypes.end())
    raise<CheckpointError>("'", name, "' has the unknown dtype ", type_name);
  SafetensorsEntry entry{name, type->type, json.at("shape").get<std::vector<int64_t>>(),
                         json.at("data_offsets").at(0).get<uint64_t>(),
                         json.at("data_offsets").at(1).get<uint64_t>()};
  auto num_bytes =
      int64_t(c10::elementSize(entry.type));  // counts sizes of 0 as 1, because strides have to fit too
  bool is_empty = false;
  bool possible =
      entry.begin <= entry.end && entry.end <= data_bytes && entry.sizes.size() <= kMaxSafetensorsDims;
  for (const int64_t size : entry.sizes) {
    is_empty = is_empty || size == 0;
    possible =
        possible && size >= 0 && !__builtin_mul_overflow(num_bytes, std::max<int64_t>(size, 1), &num_bytes);
  }
  if (!possible || uint64_t(is_empty ? 0 : num_bytes) != entry.end - entry.begin) {
    raise<CheckpointError>("the sizes and offsets of '", name, "' do not fit together or the file");
  }
  return entry;
}

/// Returns the header's entries in the order of their data. Throws CheckpointError if the data has gaps.
std::vector<SafetensorsEntry> parse_safetensors_header(const std::string& text, uint64_t data_bytes) {
  std::vector<SafetensorsEntry> entries;
  const Json header = parse_json(text, "its header", kMaxHeaderBytes);
  for (const auto& [name, json] : header.items()) {
    if (name != "__metadata__") entries.push_back(parse_safetensors_entry(name, json, data_bytes));
  }
  std::ranges::sort(entries, {}, [](const SafetensorsEntry& entry) {
    return std::tuple(entry.begin, entry.end, std::string_view(entry.name));
  });
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != end) {
      raise<CheckpointError>("the data of '", entry.name, "' begins at byte ", entry.begin, ", expected ",
                             end, ", where the one before it ends");
    }
    end = entry.end;
  }
  if (end != data_bytes) {
    raise<CheckpointError>("there are ", data_bytes, " bytes of data, the header describes ", end);
  }
  return entries;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path path, std::optional<FileSums> sums)
    : file_(std::move(path), std::move(sums)) {
  try {
    read_header();
  } catch (const Json::exception& error) {
    raise<CheckpointError>("cannot read ", file_.path(), ": its header is altered: ", error.what());
  } catch (const ConfigError& error) {
    raise<CheckpointError>("cannot read ", file_.path(), ": its header is altered: ", error.what());
  } catch (const CheckpointError& error) {
    raise<CheckpointError>("cannot read ", file_.path(), ": ", error.what());
  }
}

void SafetensorsFile::read_header() {
  uint64_t header_bytes = 0;
  if (file_.size() >= sizeof(header_bytes)) file_.read(0, &header_bytes, sizeof(header_bytes));
  if (header_bytes == 0 || header_bytes > kMaxHeaderBytes ||
      header_bytes > file_.size() - sizeof(header_bytes)) {
    raise<CheckpointError>("the header is torn");
  }
  std::string text(header_bytes, '\0');
  file_.read(sizeof(header_bytes), text.data(), header_bytes);
  const uint64_t data_offset = sizeof(header_bytes) + header_bytes;
  for (SafetensorsEntry& entry : parse_safetensors_header(text, file_.size() - data_offset)) {
    positions_.emplace(entry.name, tensors_.size());
    offsets_.push_back(data_offset + entry.begin);
    tensors_.emplace_back(std::move(entry.name),
                          at::empty(entry.sizes, at::TensorOptions().dtype(entry.type).device(at::kMeta)));
  }
}

at::Tensor SafetensorsFile::load(const std::string& name) const {
  const auto position = positions_.find(name);
  if (position == positions_.end()) raise<UsageError>(path(), " has no tensor '", name, "'");
  const at::Tensor& described = tensors_[position->second].tensor;
  at::Tensor tensor = at::empty(described.sizes(), described.options().device(at::kCPU));
  if (tensor.numel() > 0) file_.read(offsets_[position->second], tensor.mutable_data_ptr(), tensor.nbytes());
  return tensor;
}

NamedTensors read_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  NamedTensors tensors;
  for (const auto& [name, described] : file.tensors()) tensors.emplace_back(name, file.load(name));
  return tensors;
}

}  // namespace deepspeed::checkpoint
