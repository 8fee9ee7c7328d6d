#include "tests/simulated_cuda/device/graphs.h"

#include <cstdlib>
#include <cstring>

#include "tests/simulated_cuda/device/findings.h"
#include "tests/simulated_cuda/device/generator.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {
namespace {

Graph* captured = nullptr;

}  // namespace

GraphPool::~GraphPool() {
  for (const auto& block : freed) std::free(block->bytes);
}

Graph* Graph::current() { return captured; }

Graph::Graph(const Graph* neighbour)
    : stream_(current_stream(-1)),
      pool_(neighbour != nullptr ? neighbour->pool_ : std::make_shared<GraphPool>()) {
  const Lock lock(device_mutex());
  TORCH_CHECK(captured == nullptr, "a stream is captured already");
  TORCH_CHECK(stream_.id() != 0, "CUDA graphs must be captured on a non-default stream");
  numbers_ = default_generator(-1).get_state();
  captured = this;
}

Graph::~Graph() {
  const Lock lock(device_mutex());
  if (captured == this) captured = nullptr;
}

void Graph::keep_content(const Use& use) {
  const Block* const block = block_at(use.data);
  if (!use.writes || block == nullptr || block->pool.lock() == pool_) return;
  contents_.try_emplace(block->address, block->bytes, block->bytes + block->size);
}

void Graph::take(const char* name, const c10::Stream& stream, const std::vector<Use>& uses) {
  if (stream != stream_) {
    report("capture " + std::string(name) + name_of_stream(index_of(stream)),
           "capture: " + std::string(name) + " is given to " + name_of_stream(index_of(stream)) + " while " +
               name_of_stream(index_of(stream_)) + " is captured\n" + Stack::here().text());
  }
  for (const Use& use : uses) {
    if (use.bytes == 0 || use.data == nullptr) continue;
    if (block_at(use.data) == nullptr) bytes_at(use.data);  // throws for an address of the device
    keep_content(use);
    uses_.push_back(use);
  }
}

void Graph::end() {
  const Lock lock(device_mutex());
  TORCH_CHECK(captured == this, "this graph is not captured now");
  captured = nullptr;
  is_ended_ = true;
  for (const auto& [address, content] : contents_) {
    if (Block* const block = block_at(address)) std::memcpy(block->bytes, content.data(), content.size());
  }
  contents_.clear();
  at::Generator generator = default_generator(-1);
  generator.set_state(numbers_);
}

void Graph::replay() {
  const Lock lock(device_mutex());
  TORCH_CHECK(is_ended_, "replay of a graph whose capture has not ended");
  refuse_in_capture("a replay");
  if (std::exchange(pool_->is_fresh, false)) {
    for_each_block([&](Block& block) {
      if (block.pool.lock() == pool_) std::memset(block.bytes, kPoison, block.size);
    });
    for (const auto& block : pool_->freed) std::memset(block->bytes, kPoison, block->size);
  }
  std::vector<Use> uses;
  for (const Use& use : uses_) {
    const auto is_of_pool = [&](const auto& block) {
      return use.data >= block->address && use.data < block->address + block->size;
    };
    if (std::none_of(pool_->freed.begin(), pool_->freed.end(), is_of_pool)) uses.push_back(use);
  }
  const bool is_free_of_races = launch("a graph", current_stream(-1), uses);
  for (const auto& work : works_) work();
  for (const Use& use : uses) {
    if (use.writes && !is_free_of_races) std::memset(bytes_at(use.data), kPoison, use.bytes);
  }
}

void refuse_in_capture(const std::string& what) {
  const Lock lock(device_mutex());
  TORCH_CHECK(captured == nullptr, what, ": operation not permitted when stream is capturing");
}

void repeat_in_graph(std::function<void()> work) {
  const Lock lock(device_mutex());
  if (captured != nullptr) captured->add_work(std::move(work));
}

}  // namespace deepspeed::simulated
