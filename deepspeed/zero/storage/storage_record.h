// A storage whose bytes come and go while its tensors keep identity, sizes and autograd state. This file says
// what is attached to it, and how it is emptied and filled.
//
// The storage keeps its logical size while it is empty, so that views pass their bounds checks. Reading its
// data then throws the record's text, wherever torch checks.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/StorageImpl.h>

namespace deepspeed::zero {

/// Marks armed tensors, so that torch calls the interception. It is the highest key that tensors have.
constexpr c10::DispatchKey kInterceptionKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

/// Fills and empties the storage of an armed tensor (see arm()). It is the context of the storage's DataPtr,
/// and destroyed with the storage unless another handle is kept. interception.cpp calls it around each
/// operator on the tensor or a view of it.
class StorageRecord {
 public:
  virtual ~StorageRecord() = default;
  StorageRecord(const StorageRecord&) = delete;
  StorageRecord& operator=(const StorageRecord&) = delete;

  /// Makes the data whole until end_use(), since `op` reads or writes it. Throws UsageError if that is not
  /// allowed. Throws CommError or IoError if the data cannot be gathered. After an error no end_use()
  /// follows.
  virtual void begin_use(const std::string& op, bool writes) = 0;
  virtual void end_use() = 0;
  /// Returns the record of a copy in another floating type, as to() makes it. The copy needs no data yet.
  /// Null if the copy is to be an ordinary tensor.
  virtual std::shared_ptr<StorageRecord> cast(at::ScalarType dtype) = 0;
  /// Notes that torch has destroyed the storage, on the thread that dropped its last reference.
  virtual void on_storage_lost() noexcept = 0;
  /// Returns the error text for reading the empty storage.
  virtual std::string text_where_empty() const = 0;

  /// Returns whether the record is attached to a storage that still exists.
  bool has_storage() const { return !storage_.expired(); }
  /// Gives the storage `data`, which must live until empty(). Does nothing if the storage is gone.
  void fill(void* data) const;
  /// Empties the storage. Reading its data then throws text_where_empty().
  void empty() const;

 protected:
  StorageRecord() = default;

 private:
  friend void arm(const at::Tensor& tensor, std::shared_ptr<StorageRecord> record,
                  const at::TensorOptions& options);

  void set_data(c10::StorageImpl& storage, void* data) const;

  c10::weak_intrusive_ptr<c10::StorageImpl> storage_{c10::intrusive_ptr<c10::StorageImpl>()};
};

/// Gives `tensor` an empty dense storage of its own size, with `record` on it. The tensor also gets the
/// dispatch key by which operators on it and its views are intercepted. Its identity, sizes and autograd
/// state stay; its data is dropped. `options`: its type and device afterwards (default: its own).
void arm(const at::Tensor& tensor, std::shared_ptr<StorageRecord> record,
         const at::TensorOptions& options = {});

/// Separates the armed `tensor` from other tensors over its storage. The tensor moves to a new, empty storage
/// with the record. The others become ordinary tensors: their storage takes the memory of `values`, which is
/// dense and has all its elements. The old storage also keeps `seen` alive, because callers may hold pointers
/// into that tensor's memory.
void rearm_apart(const at::Tensor& tensor, const at::Tensor& values, const at::Tensor& seen);

/// Returns the record on the tensor's storage; null for an ordinary tensor.
std::shared_ptr<StorageRecord> record_of(const at::Tensor& tensor);

}  // namespace deepspeed::zero
