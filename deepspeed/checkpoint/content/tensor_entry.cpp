#include "deepspeed/checkpoint/content/tensor_entry.h"

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {

const at::Tensor* tensor_entry(const std::string& name, const Value& value) {
  if (value.get_if<Object>() != nullptr) {
    raise<CheckpointError>("the entry '", name, "' is a ", value.kind(),
                           ", expected a tensor; convert it to a plain one and save it again");
  }
  return value.get_if<at::Tensor>();
}

}  // namespace deepspeed::checkpoint
