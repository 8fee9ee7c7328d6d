// A launch runs its blocks in turn. A block has a fiber for each thread that has begun; pick() says which one
// runs next: by number, or at random. A thread that waits leaves its fiber, and whoever completes a barrier
// or a warp meeting makes the others ready. Where nobody is ready and somebody waits, the launch has a
// deadlock.
#include "cuda_emulation/emulation/grid.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <utility>

#include "cuda_emulation/emulation/fiber.h"

namespace emulation {

Builtins builtins;
Running running;

namespace {

constexpr size_t kStackBytes = size_t{256} * 1024;
constexpr size_t kMostFindings = 20;
constexpr size_t kMostSharedBytes = size_t{227} * 1024;  // that a block may have on Hopper

enum class State : uint8_t { kUnstarted, kReady, kWaitsAtBarrier, kWaitsInWarp, kFinished };

struct Thread {
  State state = State::kUnstarted;
  uint32_t number = 0;
  uint3 index{};
  Fiber* fiber = nullptr;
  Where waits_at{};
};

// For each lane of the warp: how many times it has synchronised, as far as the thread has heard.
using Clocks = std::array<uint32_t, kWarpSize>;

bool is_one_place(const Where& a, const Where& b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

/// The launch that runs. There is one at a time.
class Grid {
 public:
  void run(dim3 grid, dim3 block, size_t shared_bytes, const char* name, void (*kernel)(void*),
           void* argument);

  Votes barrier(bool predicate, const Where& where);
  Gathered gather(unsigned mask, uint64_t value, const char* function, const Where& where, bool orders);
  void add_finding(const char* kind, std::string text);

  std::unique_ptr<char, void (*)(void*)> shared{nullptr, &std::free};
  std::vector<Finding> findings;
  cudaError_t last_error = cudaSuccess;

 private:
  bool is_refused(dim3 grid, dim3 block, size_t bytes);
  void make_shared(size_t bytes);
  bool run_block();
  void prepare_block();
  void begin(Thread& thread);
  void resume(Thread& thread);
  void wait(Thread& thread, State state, const Where& where);
  void thread_ends(Thread& thread);
  void release_barrier();
  void release_meeting(const Thread& last, unsigned mask, bool orders);
  void go_on_or_queue(Thread& thread);
  void describe_deadlock();
  int pick();

  uint64_t random() {
    seed_ ^= seed_ << 13, seed_ ^= seed_ >> 7, seed_ ^= seed_ << 17;
    return seed_;
  }
  Thread& current() { return threads_[running.thread]; }
  static uint32_t first_of_warp(const Thread& thread) { return thread.number / kWarpSize * kWarpSize; }
  WarpMeetings& warp_of(const Thread& thread) { return warps_[thread.number / kWarpSize]; }
  unsigned present_lanes(const Thread& thread) const {
    const size_t left = threads_.size() - first_of_warp(thread);
    return left >= kWarpSize ? ~0U : (1U << left) - 1;
  }
  unsigned returned_lanes(const Thread& thread) const {
    unsigned lanes = 0;
    for (uint32_t i = first_of_warp(thread); i < threads_.size() && i < first_of_warp(thread) + kWarpSize;
         ++i)
      if (threads_[i].state == State::kFinished) lanes |= 1U << (i % kWarpSize);
    return lanes;
  }

  void (*kernel_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::string name_;
  uint64_t seed_ = 0;
  bool shuffles_ = false;
  std::vector<Thread> threads_;
  std::vector<WarpMeetings> warps_;
  std::vector<Clocks> clocks_;  // a thread
  std::vector<uint32_t> ready_, unstarted_;
  size_t ready_at_ = 0, unstarted_at_ = 0;  // those before have been picked
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  size_t num_finished_ = 0;
  // The barrier at which threads wait:
  size_t at_barrier_ = 0;
  Votes votes_, released_;
  Where barrier_at_{};
  bool returned_early_ = false;
};

Grid& the_grid() {
  static Grid one;
  return one;
}

void Grid::add_finding(const char* kind, std::string text) {
  if (running.launch != 0) {
    const uint3 t = builtins.thread_index, b = builtins.block_index;
    std::array<char, 160> at{};
    std::snprintf(at.data(), at.size(), " [thread (%u,%u,%u) of block (%u,%u,%u), %.60s]", t.x, t.y, t.z, b.x,
                  b.y, b.z, name_.c_str());
    text += at.data();
  }
  if (findings.size() < kMostFindings) findings.push_back({kind, std::move(text)});
}

bool Grid::is_refused(dim3 grid, dim3 block, size_t bytes) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool is_shaped = grid.x != 0 && grid.y != 0 && grid.z != 0 && grid.x <= 0x7fffffffU &&
                         grid.y <= 65535 && grid.z <= 65535 && threads != 0 && threads <= 1024 &&
                         block.z <= 64;
  if (!is_shaped) {
    last_error = cudaErrorInvalidConfiguration;
  } else if (bytes > kMostSharedBytes) {
    last_error = cudaErrorInvalidValue;
  }
  return !is_shaped || bytes > kMostSharedBytes;
}

// It is a block of the heap, so that AddressSanitizer knows its end. Hardware promises 16 bytes of alignment.
void Grid::make_shared(size_t bytes) {
  void* made = nullptr;
  if (bytes != 0 && ::posix_memalign(&made, 16, bytes) != 0) throw std::bad_alloc();
  shared.reset(static_cast<char*>(made));
  dynamic_shared_is(shared.get(), bytes);
}

void Grid::run(dim3 grid, dim3 block, size_t bytes, const char* name, void (*kernel)(void*), void* argument) {
  if (is_refused(grid, block, bytes)) return;
  const size_t findings_before = findings.size();
  kernel_ = kernel, argument_ = argument, name_ = name;
  seed_ = order_seed();
  shuffles_ = seed_ != 0;
  builtins.block_size = block, builtins.grid_size = grid;
  make_shared(bytes);
  threads_.assign(size_t{block.x} * block.y * block.z, {});
  clocks_.assign(threads_.size(), {});
  warps_.resize((threads_.size() + kWarpSize - 1) / kWarpSize);
  const auto launch = static_cast<uint32_t>(++counts().launches);
  const uint64_t num_blocks = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t first = shuffles_ ? random() % num_blocks : 0;
  uint64_t begin = first, count = num_blocks;
  if (!single_blocks().empty()) {
    begin = single_blocks().front(), count = 1;
    single_blocks().pop_front();
    if (begin >= num_blocks) add_finding("launch", "there is no block " + std::to_string(begin));
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t b = (begin + i) % num_blocks;
    builtins.block_index = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y),
                            unsigned(b / grid.x / grid.y)};
    running.launch = launch, running.block = uint32_t(b), running.epoch = 0;
    const bool has_ended = run_block();
    running.launch = 0;
    if (!has_ended) break;
  }
  running = {};
  make_shared(0);
  if (findings.size() != findings_before) last_error = cudaErrorLaunchFailure;
}

void Grid::prepare_block() {
  const dim3 size = builtins.block_size;
  for (uint32_t i = 0; i < threads_.size(); ++i) {
    threads_[i].state = State::kUnstarted;
    threads_[i].number = i;
    threads_[i].index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
  }
  for (WarpMeetings& warp : warps_) warp.clear();
  if (has_race_detector()) std::fill(clocks_.begin(), clocks_.end(), Clocks{});
  unstarted_.resize(threads_.size());
  std::iota(unstarted_.begin(), unstarted_.end(), 0U);
  ready_.clear();
  ready_at_ = unstarted_at_ = num_finished_ = at_barrier_ = 0;
  returned_early_ = false;
}

/// Returns whether all threads came to their end.
bool Grid::run_block() {
  prepare_block();
  for (int next = pick(); next >= 0; next = pick()) {
    Thread& thread = threads_[static_cast<size_t>(next)];
    if (thread.fiber == nullptr) begin(thread);
    resume(thread);
    if (thread.state == State::kFinished) thread_ends(thread);
  }
  if (num_finished_ == threads_.size()) return true;
  describe_deadlock();
  for (Thread& thread : threads_) {  // what they have begun is dropped
    if (thread.fiber != nullptr) idle_.push_back(std::exchange(thread.fiber, nullptr));
  }
  return false;
}

/// Returns the next thread to run, or -1. In order, those that are ready come before those that have not
/// begun.
int Grid::pick() {
  const size_t ready = ready_.size() - ready_at_, unstarted = unstarted_.size() - unstarted_at_;
  if (ready + unstarted == 0) return -1;
  size_t choice = shuffles_ ? random() % (ready + unstarted) : 0;
  const bool is_ready = choice < ready;
  if (!is_ready) choice -= ready;
  auto& from = is_ready ? ready_ : unstarted_;
  size_t& at = is_ready ? ready_at_ : unstarted_at_;
  std::swap(from[at], from[at + choice]);
  return static_cast<int>(from[at++]);
}

void Grid::begin(Thread& thread) {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(kStackBytes));
    idle_.push_back(fibers_.back().get());
  }
  thread.fiber = idle_.back();
  idle_.pop_back();
  ++counts().threads;
  thread.fiber->start(
      [](void* started) {
        Grid& self = the_grid();
        self.kernel_(self.argument_);
        static_cast<Thread*>(started)->state = State::kFinished;
      },
      &thread);
}

void Grid::resume(Thread& thread) {
  builtins.thread_index = thread.index;
  running.thread = thread.number;
  running.clocks = clocks_[thread.number].data();
  running.stack_begin = thread.fiber->stack_begin(), running.stack_end = thread.fiber->stack_end();
  ++counts().switches;
  running.in_engine = false;
  thread.fiber->enter();
  running.in_engine = true;
}

void Grid::wait(Thread& thread, State state, const Where& where) {
  thread.state = state;
  thread.waits_at = where;
  while (thread.state != State::kReady) thread.fiber->leave();
}

// Who completes a meeting goes on at once, unless the order is random.
void Grid::go_on_or_queue(Thread& thread) {
  thread.state = State::kReady;
  if (!shuffles_) return;
  ready_.push_back(thread.number);
  thread.fiber->leave();
}

void Grid::thread_ends(Thread& thread) {
  idle_.push_back(std::exchange(thread.fiber, nullptr));
  ++num_finished_;
  warp_of(thread).lane_ends(thread.number % kWarpSize,
                            [this](std::string text) { add_finding("warp", std::move(text)); });
  if (at_barrier_ == 0) return;
  returned_early_ = true;
  if (at_barrier_ + num_finished_ == threads_.size()) release_barrier();
}

Votes Grid::barrier(bool predicate, const Where& where) {
  Thread& thread = current();
  ++counts().barriers;
  if (at_barrier_ == 0) {
    barrier_at_ = where;
    votes_ = {};
    returned_early_ = num_finished_ != 0;
  } else if (!is_one_place(barrier_at_, where)) {
    add_finding("barrier", "threads of a block wait at different barriers: " + place(barrier_at_) + " and " +
                               place(where));
  }
  ++at_barrier_;
  votes_.count += predicate ? 1 : 0;
  votes_.all &= predicate ? 1 : 0;
  votes_.any |= predicate ? 1 : 0;
  if (at_barrier_ + num_finished_ < threads_.size()) {
    wait(thread, State::kWaitsAtBarrier, where);
  } else {
    release_barrier();
    go_on_or_queue(thread);
  }
  return released_;
}

// Hardware lets threads return before a barrier, and CUDA's guide calls it undefined.
void Grid::release_barrier() {
  if (returned_early_)
    add_finding("barrier",
                "a thread returned before the barrier at " + place(barrier_at_) + ", where others wait");
  released_ = votes_;
  at_barrier_ = 0;
  ++running.epoch;
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(ready_at_));
  ready_at_ = 0;
  for (Thread& thread : threads_) {
    if (thread.state != State::kWaitsAtBarrier) continue;
    thread.state = State::kReady;
    ready_.push_back(thread.number);
  }
}

Gathered Grid::gather(unsigned mask, uint64_t value, const char* function, const Where& where, bool orders) {
  Thread& thread = current();
  ++counts().warp_calls;
  const int meeting = warp_of(thread).arrive(
      {thread.number % kWarpSize, mask, function, where}, value, present_lanes(thread),
      returned_lanes(thread), [this](std::string text) { add_finding("warp", std::move(text)); });
  if (warp_of(thread).is_complete(meeting)) {
    release_meeting(thread, warp_of(thread).mask(meeting), orders);
    go_on_or_queue(thread);
  } else {
    wait(thread, State::kWaitsInWarp, where);
  }
  return warp_of(thread).read(meeting);
}

/// Makes the other lanes ready. Where the function orders memory, each lane hears what all others have heard.
void Grid::release_meeting(const Thread& last, unsigned mask, bool orders) {
  const uint32_t first = first_of_warp(last);
  Clocks joint{};
  for (unsigned l = 0; l < kWarpSize; ++l) {
    if ((mask >> l & 1U) == 0) continue;
    Thread& lane = threads_[first + l];
    if (&lane != &last) {
      lane.state = State::kReady;
      ready_.push_back(lane.number);
    }
    if (!orders) continue;
    Clocks& clocks = clocks_[first + l];
    ++clocks[l];
    for (unsigned k = 0; k < kWarpSize; ++k) joint[k] = std::max(joint[k], clocks[k]);
  }
  if (!orders) return;
  for (unsigned l = 0; l < kWarpSize; ++l)
    if ((mask >> l & 1U) != 0) clocks_[first + l] = joint;
}

void Grid::describe_deadlock() {
  constexpr int kMostPlaces = 6;
  std::string text = "threads wait for ever:", last;
  int places = 0;
  for (const Thread& thread : threads_) {
    if (thread.state == State::kFinished) continue;
    const std::string at =
        (thread.state == State::kWaitsAtBarrier ? " at a barrier, " : " in a warp function, ") +
        place(thread.waits_at);
    if (at != last && ++places < kMostPlaces) text += " thread " + std::to_string(thread.number) + at + ";";
    last = at;
  }
  add_finding("deadlock", text);
}

}  // namespace

uint64_t& order_seed() {
  static uint64_t seed = 0;
  return seed;
}

std::deque<uint64_t>& single_blocks() {
  static std::deque<uint64_t> numbers;
  return numbers;
}

Counts& counts() {
  static Counts one;
  return one;
}

std::vector<Finding> take_findings() { return std::exchange(the_grid().findings, {}); }

void report(const char* kind, std::string text) {
  const InEngine guard;
  the_grid().add_finding(kind, std::move(text));
}

void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const char* name, void (*kernel)(void*),
              void* argument) {
  the_grid().run(grid, block, shared_bytes, name, kernel, argument);
}

Votes barrier(bool predicate, const Where& where) {
  const InEngine guard;
  return the_grid().barrier(predicate, where);
}

Gathered gather(unsigned mask, uint64_t value, const char* function, const Where& where) {
  const InEngine guard;
  return the_grid().gather(mask, value, function, where, false);
}

void sync_warp(unsigned mask, const Where& where) {
  const InEngine guard;
  the_grid().gather(mask, 0, "__syncwarp", where, true);
}

void report_lane_outside_mask(const char* function, unsigned lane, const Where& where) {
  report("warp", std::string(function) + " at " + place(where) + " reads lane " + std::to_string(lane) +
                     ", which is not in the mask");
}

unsigned lane() { return running.thread % kWarpSize; }

void* dynamic_shared_memory() { return the_grid().shared.get(); }

DeviceMemory::DeviceMemory(size_t bytes, size_t offset) : bytes_(bytes) {
  // It takes sizes of any kind, so that AddressSanitizer knows the exact end.
  if (::posix_memalign(&whole_, 256, std::max<size_t>(offset + bytes, 1)) != 0) throw std::bad_alloc();
  data_ = static_cast<char*>(whole_) + offset;
  memory_is_born(data_, bytes);
}

DeviceMemory::~DeviceMemory() {
  memory_dies(data_);
  std::free(whole_);
}

// A build with the race detector has these in race_detector.cpp.
__attribute__((weak)) void memory_is_born(char*, size_t) {}
__attribute__((weak)) void memory_dies(char*) {}
__attribute__((weak)) void dynamic_shared_is(char*, size_t) {}
__attribute__((weak)) bool has_race_detector() { return false; }
__attribute__((weak)) void note_atomic(const void*, size_t, const void*) {}
__attribute__((weak)) void note_access(const void*, size_t, bool, const void*) {}

}  // namespace emulation

// The functions of CUDA's run-time library that the code under test calls.
extern "C" {
cudaError_t cudaGetLastError() { return std::exchange(emulation::the_grid().last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return emulation::the_grid().last_error; }
}
