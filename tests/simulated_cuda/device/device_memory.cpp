// The device's allocator, as torch's: what a stream has freed it may use again at once.
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

#include <c10/core/CachingDeviceAllocator.h>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/simulated_cuda/device/blocks.h"
#include "tests/simulated_cuda/device/findings.h"
#include "tests/simulated_cuda/device/graphs.h"
#include "tests/simulated_cuda/device/memory.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {
namespace {

constexpr size_t kReserved = size_t{1} << 42;  // addresses; none is used twice
constexpr size_t kAlignment = 512;             // of torch's allocator

struct Arena {
  char* begin = nullptr;
  size_t used = 0;
  std::map<int, int64_t> allocated, peak;
  std::map<size_t, std::vector<Block>> freed;  // by stream, with accesses of others, until it allocates
};

Arena& arena() {
  static auto* const made = new Arena;  // outlives all tensors
  return *made;
}

bool is_device_address(const void* data) {
  const char* const begin = arena().begin;
  return begin != nullptr && data >= begin && data < begin + kReserved;
}

struct sigaction former_handler;

/// Says where the host used device memory, and whose it is. The signal comes again then, and ends the
/// process.
void explain_fault(int signal, siginfo_t* info, void*) {
  if (is_device_address(info->si_addr)) {
    std::string text = "the host follows an address of the device:\n" + Stack::here().text();
    if (const Block* const block = block_at(info->si_addr))
      text += "    allocation:\n" + block->allocation.text();
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) ::_exit(1);
  }
  ::sigaction(signal, &former_handler, nullptr);
}

void reserve_addresses() {
  Arena& a = arena();
  a.begin = static_cast<char*>(
      ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (a.begin == MAP_FAILED) throw std::runtime_error("no addresses for the simulated device");
  struct sigaction handler {};
  handler.sa_sigaction = &explain_fault;
  handler.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &handler, &former_handler);
}

/// Whatever may still use memory that the stream is about to get was not recorded.
void check_reuse(size_t stream) {
  for (const Block& block : arena().freed[stream]) {
    for (const Access& access : block.accesses) {
      if (is_ordered(access, stream)) continue;
      report("reuse " + std::string(access.name) + access.stack.key(),
             "race: memory of " + name_of_stream(stream) + " was freed while " + text_of(access) +
                 " it, and is given out again; record_stream() it, or wait\n    " + access.name + ":\n" +
                 access.stack.text() + "    allocation:\n" + Stack::here().text());
    }
  }
  arena().freed.erase(stream);
}

void free_device(void* data) {
  const Lock lock(device_mutex());
  auto block = take_block(data);
  if (block == nullptr) return;
  arena().allocated[block->device] -= static_cast<int64_t>(block->size);
  if (const auto pool = block->pool.lock()) {  // the graph's until its end
    pool->freed.push_back(std::move(block));
    return;
  }
  std::free(block->bytes);
  std::erase_if(block->accesses, [&](const Access& access) {
    return access.stream == block->home || block->recorded.contains(access.stream) ||
           host_clock().of(access.stream) >= access.tick;
  });
  if (!block->accesses.empty()) arena().freed[block->home].push_back(std::move(*block));
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const Lock lock(device_mutex());
    const int device = current_device();
    if (bytes == 0) return {nullptr, nullptr, &free_device, device_of(device)};
    note_use(device, "an allocation");
    const size_t stream = index_of(current_stream(device));
    const Graph* const graph = Graph::current();
    if (graph == nullptr) check_reuse(stream);
    Arena& a = arena();
    if (a.begin == nullptr) reserve_addresses();
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (a.used + rounded + kAlignment > kReserved)
      throw std::runtime_error("the simulated device has no more addresses");
    auto block = std::make_unique<Block>();
    block->address = a.begin + a.used;
    a.used += rounded + kAlignment;
    block->bytes = static_cast<char*>(std::aligned_alloc(kAlignment, rounded));
    std::memset(block->bytes, kPoison, rounded);
    block->size = bytes;
    block->home = stream;
    block->device = device;
    if (graph != nullptr) block->pool = graph->pool();
    block->allocation = Stack::here();
    a.peak[device] = std::max(a.peak[device], a.allocated[device] += static_cast<int64_t>(bytes));
    char* const address = block->address;
    add_block(std::move(block));
    return {address, address, &free_device, device_of(device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device; }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    record_stream(data.get(), stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const Lock lock(device_mutex());
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& all = stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
    all.current = arena().allocated[device];
    all.peak = arena().peak[device];
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    const Lock lock(device_mutex());
    arena().peak[device] = arena().allocated[device];
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    launch("copy_data", current_stream(-1), {{to, bytes, true}, {from, bytes, false}});
    std::memcpy(bytes_at(to), bytes_at(from), bytes);
  }
};

}  // namespace

c10::Allocator* device_allocator() {
  static DeviceAllocator allocator;
  return &allocator;
}

char* bytes_at(const void* data) {
  const Lock lock(device_mutex());
  if (!is_device_address(data)) return static_cast<char*>(const_cast<void*>(data));
  const Block* const block = block_at(data);
  if (block == nullptr)
    throw std::runtime_error("illegal memory access on the simulated device: freed, or never given out");
  return block->bytes + (static_cast<const char*>(data) - block->address);
}

}  // namespace deepspeed::simulated
