#include "tests/simulated_cuda/device/graphs.h"

#include <cstdlib>
#include <cstring>

#include <torch/csrc/autograd/engine.h>

#include "tests/simulated_cuda/device/findings.h"
#include "tests/simulated_cuda/device/generator.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {
namespace {

Graph* captured = nullptr;
bool has_generator = false;  // a capture that was left without an end

}  // namespace

GraphPool::~GraphPool() {
  for (const auto& block : freed) std::free(block->bytes);
}

Graph* Graph::current() { return captured != nullptr && captured->is_here() ? captured : nullptr; }

void Graph::check_stream(const char* name, const c10::Stream& stream) {
  if (captured == nullptr || captured->is_here() || stream != captured->stream_) return;
  report("capture of another thread " + std::string(name),
         "capture: " + std::string(name) + " of another thread is given to " +
             name_of_stream(index_of(stream)) + ", which is captured\n" + Stack::here().text());
}

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
  if (captured != this) return;
  captured = nullptr;
  has_generator = true;
}

bool Graph::is_here() const {
  return std::this_thread::get_id() == thread_ || torch::autograd::get_current_graph_task_id() >= 0;
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
  has_generator = false;
  for (const auto& [address, content] : contents_) {
    if (Block* const block = block_at(address)) std::memcpy(block->bytes, content.data(), content.size());
  }
  contents_.clear();
  at::Generator generator = default_generator(-1);
  generator.set_state(numbers_);
  TORCH_CHECK(!is_broken_, "operation failed due to a previous error during capture");
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
  Graph* const graph = Graph::current();
  if (graph == nullptr) return;
  graph->is_broken_ = true;
  TORCH_CHECK(false, what, ": operation not permitted when stream is capturing");
}

void refuse_after_left_capture() {
  const Lock lock(device_mutex());
  TORCH_CHECK(!has_generator, "Offset increment outside graph capture encountered unexpectedly");
}

void repeat_in_graph(std::function<void()> work) {
  const Lock lock(device_mutex());
  if (Graph* const graph = Graph::current()) graph->add_work(std::move(work));
}

}  // namespace deepspeed::simulated
