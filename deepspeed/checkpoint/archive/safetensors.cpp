#include "deepspeed/checkpoint/archive/safetensors.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/archive/safetensors_types.h"
#include "deepspeed/checkpoint/file/atomic_file.h"

namespace deepspeed::checkpoint {
namespace {

std::string header_of(const NamedTensors& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto* type = std::ranges::find(kSafetensorsTypes, tensor.scalar_type(), &SafetensorsType::type);
    if (type == kSafetensorsTypes.end()) {
      raise<UsageError>("'", name, "' has the dtype ", at::toString(tensor.scalar_type()),
                        ", which safetensors cannot hold; convert it, or write a file of torch");
    }
    const uint64_t end = offset + tensor.nbytes();
    header[name] = {{"dtype", type->name}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data to 8 bytes
  return text;
}

}  // namespace

FileSums write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                           const TensorStream& stream) {
  const std::string header = header_of(tensors);
  const uint64_t header_size = header.size();
  AtomicFile file(path);
  uint64_t num_bytes = sizeof(header_size) + header_size;
  for (const auto& [name, tensor] : tensors) num_bytes += tensor.nbytes();
  file.reserve(num_bytes);
  file.write(&header_size, sizeof(header_size));
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    if (tensor.is_meta() && stream) {
      stream(tensor, [&](const void* data, size_t size) { file.write(data, size); });
    } else {
      const at::Tensor data = tensor.detach().cpu().contiguous();
      file.write(data.const_data_ptr(), data.nbytes());
    }
  }
  return file.commit();
}

}  // namespace deepspeed::checkpoint
