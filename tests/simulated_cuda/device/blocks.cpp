#include "tests/simulated_cuda/device/blocks.h"

#include <map>
#include <string>
#include <utility>

#include "tests/simulated_cuda/device/findings.h"
#include "tests/simulated_cuda/device/graphs.h"
#include "tests/simulated_cuda/device/memory.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {
namespace {

std::map<const char*, std::unique_ptr<Block>>& blocks() {
  static auto* const made = new std::map<const char*, std::unique_ptr<Block>>;  // outlives all tensors
  return *made;
}

const char* interned(const char* name) {
  static auto* const names = new std::set<std::string>;
  return names->insert(name).first->c_str();
}

/// Holds a new access against those before it, and forgets those that no later one can race with.
bool is_free_of_races(Block& block, const Access& now) {
  bool is_fine = true;
  std::erase_if(block.accesses, [&](const Access& past) {
    if (host_clock().of(past.stream) >= past.tick)
      return true;  // whatever is launched from now on comes after it
    if (past.end <= now.begin || now.end <= past.begin || !(past.writes || now.writes)) return false;
    if (is_ordered(past, now.stream)) return now.writes && now.begin <= past.begin && past.end <= now.end;
    report("race " + std::string(now.name) + past.name + now.stack.key(),
           "race: " + text_of(now) + " " + std::to_string(now.end - now.begin) + " bytes of " +
               (block.device < 0 ? "page-locked memory" : "device memory") + " that " + text_of(past) +
               "; neither waits for the other\n    " + now.name + ":\n" + now.stack.text() + "    " +
               past.name + ":\n" + past.stack.text());
    is_fine = false;
    return false;
  });
  return is_fine;
}

}  // namespace

void add_block(std::unique_ptr<Block> block) {
  const char* const begin = block->address;
  blocks()[begin] = std::move(block);
}

Block* block_at(const void* data) {
  const char* const place = static_cast<const char*>(data);
  auto found = blocks().upper_bound(place);
  if (found == blocks().begin()) return nullptr;
  Block& block = *(--found)->second;
  return place < block.address + block.size || place == block.address ? &block : nullptr;
}

std::unique_ptr<Block> take_block(const void* begin) {
  const auto found = blocks().find(static_cast<const char*>(begin));
  if (found == blocks().end()) return nullptr;
  std::unique_ptr<Block> block = std::move(found->second);
  blocks().erase(found);
  return block;
}

void for_each_block(const std::function<void(Block&)>& visit) {
  for (const auto& [begin, block] : blocks()) visit(*block);
}

bool is_ordered(const Access& access, size_t stream) {
  return access.stream == stream || clock_at(stream).of(access.stream) >= access.tick ||
         host_clock().of(access.stream) >= access.tick;
}

std::string text_of(const Access& access) {
  return access.name + (" on " + name_of_stream(access.stream)) + (access.writes ? " writes" : " reads");
}

bool launch(const char* name, const c10::Stream& stream, const std::vector<Use>& uses) {
  const Lock lock(device_mutex());
  Graph::check_stream(name, stream);
  if (Graph* const graph = Graph::current()) {
    graph->take(name, stream, uses);
    return true;
  }
  const size_t index = index_of(stream);
  const uint64_t tick = begin_work(index, name);
  const Stack stack = Stack::here();
  bool is_fine = true;
  for (const Use& use : uses) {
    if (use.bytes == 0 || use.data == nullptr) continue;
    Block* const block = block_at(use.data);
    if (block == nullptr) {
      bytes_at(use.data);  // throws for an address of the device
      continue;
    }
    const auto begin = static_cast<size_t>(static_cast<const char*>(use.data) - block->address);
    const Access now{index, tick, begin, begin + use.bytes, use.writes, interned(name), stack};
    is_fine = is_free_of_races(*block, now) && is_fine;
    std::erase_if(block->accesses, [&](const Access& past) {  // the new one stands for it
      return past.stream == index && past.begin == now.begin && past.end == now.end &&
             (now.writes || !past.writes);
    });
    block->accesses.push_back(now);
  }
  return is_fine;
}

void record_stream(const void* data, const c10::Stream& stream) {
  const Lock lock(device_mutex());
  if (Block* const block = block_at(data)) block->recorded.insert(index_of(stream));
}

}  // namespace deepspeed::simulated
