#include "deepspeed/autograd/saved_bytes.h"

#include <unordered_set>

#include "deepspeed/autograd/saved_tensors.h"

namespace deepspeed::autograd {
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
    return keep_as_it_is(tensor);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::unordered_set<const void*> seen_;
  int64_t bytes_ = 0;
  std::unique_ptr<SavedTensorScope> scope_;
};

SavedBytes::SavedBytes(const std::vector<at::Tensor>& excluded)
    : counter_(std::make_unique<Counter>(excluded)) {}
SavedBytes::~SavedBytes() = default;

int64_t SavedBytes::bytes() const { return counter_->bytes(); }

}  // namespace deepspeed::autograd
