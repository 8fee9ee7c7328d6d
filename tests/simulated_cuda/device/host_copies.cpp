#include "tests/simulated_cuda/device/host_copies.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulated_cuda/device/blocks.h"
#include "tests/simulated_cuda/device/findings.h"
#include "tests/simulated_cuda/device/memory.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {
namespace {

struct HostCopy {
  char* data;
  std::vector<char> content;
  bool to_host;
  size_t stream;
  uint64_t tick;
  std::string name;
  Stack stack;

  bool overlaps(const void* other, size_t bytes) const {
    return data < static_cast<const char*>(other) + bytes && other < data + content.size();
  }
  std::string where() const { return name + " on " + name_of_stream(stream); }
  std::string stacks(const char* seen) const {
    return "\n    " + name + ":\n" + stack.text() + "    " + seen + ":\n" + Stack::here().text();
  }
};

std::vector<HostCopy>& copies() {
  static auto* const made = new std::vector<HostCopy>;  // outlives all tensors
  return *made;
}

/// What was hidden appears, what had to stay as it was is compared.
void settle(const HostCopy& copy) {
  const auto is_poison = [](char byte) { return static_cast<unsigned char>(byte) == kPoison; };
  const bool is_as_left = copy.to_host
                              ? std::all_of(copy.data, copy.data + copy.content.size(), is_poison)
                              : std::memcmp(copy.data, copy.content.data(), copy.content.size()) == 0;
  if (!is_as_left) {
    report("host " + copy.name + copy.stack.key(),
           "race: the host writes page-locked memory while " + copy.where() +
               (copy.to_host ? " copies to it" : " copies from it") + copy.stacks("seen at the wait"));
  }
  if (copy.to_host) std::memcpy(copy.data, copy.content.data(), copy.content.size());
}

void add(const char* name, const c10::Stream& stream, const void* data, size_t bytes, bool to_host) {
  char* const begin = static_cast<char*>(const_cast<void*>(data));
  const size_t index = index_of(stream);
  copies().push_back(
      {begin, {begin, begin + bytes}, to_host, index, clock_at(index).of(index), name, Stack::here()});
}

constexpr size_t kPinnedAlignment = 512;

// torch's pool gives a block out again only when copies that use it are done, so that freeing is never early.
void free_pinned(void* data) {
  if (data == nullptr) return;
  const Lock lock(device_mutex());
  const auto block = take_block(data);
  forget_copies(data, block->size);
  std::free(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_pinned, c10::Device(c10::kCPU)};
    const size_t rounded = (bytes + kPinnedAlignment - 1) / kPinnedAlignment * kPinnedAlignment;
    void* const data = std::aligned_alloc(kPinnedAlignment, rounded);
    std::memset(data, kPoison, bytes);
    pin(data, bytes);
    return {data, data, &free_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void watch_source(const char* name, const c10::Stream& stream, const void* data, size_t bytes) {
  const Lock lock(device_mutex());
  add(name, stream, data, bytes, false);
}

void hide_destination(const char* name, const c10::Stream& stream, void* data, size_t bytes) {
  const Lock lock(device_mutex());
  add(name, stream, data, bytes, true);
  std::memset(data, kPoison, bytes);
}

void reveal(const void* data, size_t bytes, bool writes) {
  const Lock lock(device_mutex());
  std::erase_if(copies(), [&](const HostCopy& copy) {
    if (!copy.overlaps(data, bytes) || (!writes && !copy.to_host)) return false;
    settle(copy);
    return true;
  });
}

void settle_known_copies() {
  std::erase_if(copies(), [&](const HostCopy& copy) {
    if (host_clock().of(copy.stream) < copy.tick) return false;
    settle(copy);
    return true;
  });
}

void forget_copies(const void* data, size_t bytes) {
  std::erase_if(copies(), [&](const HostCopy& copy) { return copy.overlaps(data, bytes); });
}

c10::Allocator* pinned_allocator() {
  static PinnedAllocator allocator;
  return &allocator;
}

bool is_pinned(const void* data) {
  const Lock lock(device_mutex());
  const Block* const block = block_at(data);
  return block != nullptr && block->device < 0;
}

void pin(void* data, size_t bytes) {
  const Lock lock(device_mutex());
  auto block = std::make_unique<Block>();
  block->address = block->bytes = static_cast<char*>(data);
  block->size = bytes;
  add_block(std::move(block));
}

void unpin(void* data) {
  const Lock lock(device_mutex());
  const auto block = take_block(data);
  if (block == nullptr) return;
  for (const HostCopy& copy : copies()) {
    if (!copy.overlaps(data, block->size)) continue;
    report("unlock " + copy.name + copy.stack.key(), "race: page-locked memory is unlocked while " +
                                                         copy.where() + " uses it" + copy.stacks("unlocked"));
  }
  reveal(data, block->size, true);
}

}  // namespace deepspeed::simulated
