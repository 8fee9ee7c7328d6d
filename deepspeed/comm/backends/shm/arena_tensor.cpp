#include "deepspeed/comm/backends/shm/arena_tensor.h"

#include <cstring>
#include <memory>

#include <ATen/EmptyTensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/shm/arena.h"

namespace deepspeed::comm {
namespace {

/// Keeps the arena of a tensor's memory alive until free() returns that memory to it.
struct ArenaBlock {
  std::shared_ptr<shm::Arena> arena;
  void* data;

  static void free(void* block) {
    const std::unique_ptr<ArenaBlock> owned(static_cast<ArenaBlock*>(block));
    owned->arena->free(owned->data);
  }
};

// A storage that grows calls its allocator again, so it needs one and not just a pointer.
class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto arena = shm::Arena::of_process();
    void* const data = arena->allocate(bytes);
    if (data == nullptr) raise<CommError>("the arena has no room for ", bytes, " bytes");
    return {data, new ArenaBlock{std::move(arena), data}, &ArenaBlock::free, at::kCPU};
  }
  // Null means that data and context are different pointers.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

at::Tensor empty_in_arena(int64_t numel, at::ScalarType dtype) {
  static auto& allocator = *new ArenaAllocator;  // tensors may outlive other statics
  try {
    return at::detail::empty_generic({numel}, &allocator, c10::DispatchKeySet(c10::DispatchKey::CPU), dtype,
                                     std::nullopt);
  } catch (const CommError& error) {
    log::warning("[comm] a buffer of ", numel,
                 " elements lies in private memory, from which ranks copy it: ", error.what());
    return {};
  }
}

}  // namespace deepspeed::comm
