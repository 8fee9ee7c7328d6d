// A stored module has the model's tensors as a checkpoint has them, read one at a time: at stage 3 the model
// as a whole may be larger than a rank's memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/checkpoint/archive/deferred_archive.h"

namespace deepspeed {

struct StoredTensor {
  std::string name;
  at::Tensor form;                   // on the meta device
  std::function<at::Tensor()> load;  // null: its values come with the optimizer's masters
};

using StoredModule = std::vector<StoredTensor>;

/// Returns what reads one tensor of the file.
inline std::function<at::Tensor()> loader_of(std::shared_ptr<const checkpoint::DeferredArchive> file,
                                             const at::Tensor& tensor) {
  return [file = std::move(file), tensor] { return file->load(tensor); };
}

}  // namespace deepspeed
