// A storage whose bytes come and go while the tensors over it keep identity, sizes and autograd state: what
// hangs on it, and how it is emptied and filled.
//
// The storage keeps its logical size while it is empty, so that views pass their bounds checks; reading its
// data then throws, with the record's text, wherever torch checks.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace deepspeed::zero {

/// Hangs on the storage of an armed tensor, as the context of its DataPtr, and dies with it unless another
/// handle is kept. The interception calls it around each operator that takes the tensor or a view of it.
class StorageRecord {
 public:
  virtual ~StorageRecord() = default;
  StorageRecord(const StorageRecord&) = delete;
  StorageRecord& operator=(const StorageRecord&) = delete;

  /// Makes the data whole until end_use(), since `op` reads or writes it. Throws UsageError where that is not
  /// allowed, CommError where the data cannot be had; then no end_use() follows.
  virtual void begin_use(const std::string& op, bool writes) = 0;
  virtual void end_use() = 0;
  /// The record of a copy in another floating type, as to() makes it, that needs no data now; null where the
  /// copy is to be an ordinary tensor.
  virtual std::shared_ptr<StorageRecord> cast(at::ScalarType dtype) = 0;
  /// Is called when the storage is gone.
  virtual void on_storage_lost() noexcept = 0;
  /// The text of the error that reading the empty storage throws.
  virtual std::string text_where_empty() const = 0;

  /// Whether there is a storage yet, or still.
  bool has_storage() const { return !storage_.expired(); }
  /// Gives the storage `data`, which must live until empty(). Does nothing where the storage is gone.
  void fill(void* data) const;
  /// Empties the storage: reading its data throws text_where_empty() from here on.
  void empty() const;

 protected:
  StorageRecord() = default;

 private:
  friend void arm(const at::Tensor& tensor, std::shared_ptr<StorageRecord> record,
                  const at::TensorOptions& options);

  void set_data(c10::StorageImpl& storage, void* data) const;

  c10::weak_intrusive_ptr<c10::StorageImpl> storage_{c10::intrusive_ptr<c10::StorageImpl>()};
};

/// Gives `tensor` a dense storage of its own size that is empty, with `record` on it, and the dispatch key by
/// which operators on it and on its views are intercepted. Identity, sizes and autograd state stay; the data
/// that it had goes. `options`: the type and the device that it has from here on (default: its own).
void arm(const at::Tensor& tensor, std::shared_ptr<StorageRecord> record,
         const at::TensorOptions& options = {});

/// Leaves the storage of the armed `tensor` to the other tensors over it, as ordinary memory: that of
/// `values`, a dense tensor of all its elements. It keeps `seen` alive as well, memory to which pointers may
/// have been taken. The tensor gets a new storage with its record on it, which is empty.
void rearm_apart(const at::Tensor& tensor, const at::Tensor& values, const at::Tensor& seen);

/// The record on the tensor's storage; null for an ordinary tensor.
std::shared_ptr<StorageRecord> record_of(const at::Tensor& tensor);

}  // namespace deepspeed::zero
