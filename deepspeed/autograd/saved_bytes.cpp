#include "deepspeed/autograd/saved_bytes.h"

#include <unordered_set>

#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/base/error.h"

namespace deepspeed::autograd {
namespace {

// As torch keeps it, with its check for writes. The output of an operator is kept without its graph.
class AsItIs : public SavedTensor {
 public:
  explicit AsItIs(const at::Tensor& tensor)
      : value_(tensor.is_leaf() ? tensor : tensor.detach()), version_(value_._version()) {}
  at::Tensor unpack() override {
    if (value_._version() != version_)
      raise<UsageError>("a tensor that backward needs was written to in place after its use");
    return value_;
  }

 private:
  at::Tensor value_;
  uint32_t version_;
};

}  // namespace

class SavedBytes::Counter : public SavedTensorProvider {
 public:
  explicit Counter(const std::vector<at::Tensor>& excluded) {
    for (const at::Tensor& tensor : excluded) {
      if (tensor.defined() && tensor.has_storage()) seen_.insert(tensor.storage().unsafeGetStorageImpl());
    }
    scope_ = std::make_unique<SavedTensorScope>(this);
  }
  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor) override {
    if (tensor.has_storage() && seen_.insert(tensor.storage().unsafeGetStorageImpl()).second)
      bytes_ += int64_t(tensor.storage().nbytes());
    return std::make_unique<AsItIs>(tensor);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::unordered_set<const void*> seen_;
  int64_t bytes_ = 0;
  std::unique_ptr<SavedTensorScope> scope_;
};

SavedBytes::SavedBytes(const std::vector<at::Tensor>& excluded) : counter_(std::make_unique<Counter>(excluded)) {}
SavedBytes::~SavedBytes() = default;

int64_t SavedBytes::bytes() const { return counter_->bytes(); }

}  // namespace deepspeed::autograd
