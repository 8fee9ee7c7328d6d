// Optimizer state on a disk: tensors of units (a sub-group's masters and moments) that are in memory only
// while the unit is stepped, the next unit read and the last one written meanwhile.
//
// After "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep Learning" (2021), 5.2.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/io/async_io.h"
#include "deepspeed/io/queue/aligned_buffer.h"

namespace deepspeed::zero {

/// A part of a pass over the units: a transfer from its start until it was waited for, or the work.
struct SwapSpan {
  enum class Kind { kRead, kWork, kWrite };
  using Time = std::chrono::steady_clock::time_point;
  Kind kind = Kind::kWork;
  size_t unit = 0;
  Time begin, end;
};

struct StateSwapperOptions {
  std::filesystem::path folder = {};  // made where it is not there
  io::AsyncIoOptions aio = {};
  int64_t buffer_count = 4;                                // tensors in memory, in each stage of the pipeline
  bool pipeline_read = false;                              // read the next unit while one is stepped
  bool pipeline_write = false;                             // step the next unit while the last one is written
  std::function<void(const SwapSpan&)> observe = nullptr;  // told of each part of a pass, for timelines
};

/// Of one thread. Its file has no name: it is gone with the process, however that ends.
class StateSwapper {
 public:
  /// What of a unit is on the disk: contiguous CPU tensors, in the same order each time. More may follow
  /// later.
  using TensorsOf = std::function<std::vector<at::Tensor>(size_t unit)>;
  enum class Access { kRead, kChange };

  /// Throws IoError where there can be no file in the folder, naming it.
  StateSwapper(StateSwapperOptions options, TensorsOf tensors_of);
  ~StateSwapper();
  StateSwapper(const StateSwapper&) = delete;
  StateSwapper& operator=(const StateSwapper&) = delete;

  /// Calls `work` with each unit in order, whose tensors have their data meanwhile, and no elements else. A
  /// tensor that a unit did not have before is taken over after its `work`, and so is one that `work` put in
  /// the place of another, of its size; with kRead nothing is written.
  /// Throws IoError, naming folder and bytes, where the disk is full or fails, ConfigError where buffer_count
  /// is too small for a unit. After an error the units that are not in memory are as they were before.
  void for_each(const std::vector<size_t>& units, Access access, const std::function<void(size_t)>& work);

  /// Of the memory through which units pass.
  int64_t buffer_bytes() const;
  /// On the disk.
  int64_t file_bytes() const { return file_bytes_; }

 private:
  /// A tensor's place. In memory it is at the same distance from the slot's begin as in the file from the
  /// unit's.
  struct Extent {
    uint64_t in_file = 0;
    size_t bytes = 0;  // of its elements
    size_t in_slot = 0;
    std::vector<int64_t> sizes;
  };
  struct Unit {
    std::vector<Extent> extents;
    size_t slot_bytes = 0;
    bool is_complete = false;  // a whole pass found no tensor that was new
  };
  /// The transfers of a unit.
  struct Transfers {
    std::vector<uint64_t> tickets;
    SwapSpan span;
  };
  /// Memory for one unit.
  struct Slot {
    io::AlignedBuffer memory;
    Transfers reads;
    Transfers writes;
  };

  size_t num_slots() const;
  void make_slots();
  bool are_complete(const std::vector<size_t>& units) const;
  void take_over(size_t unit);
  void add_extent(Unit& unit, const at::Tensor& tensor);
  void bind(size_t unit, const Slot& slot) const;
  void take_back(size_t unit, const Slot& slot) const;
  void unbind(size_t unit) const;
  void start_read(size_t unit, Slot& slot);
  void start_write(size_t unit, Slot& slot);
  Transfers start(SwapSpan::Kind kind, size_t unit, const Slot& slot);
  void finish(Transfers& transfers);
  void check(int error, const char* what) const;
  void observe(const SwapSpan& span) const;
  void finish_all() noexcept;
  void step_through(const std::vector<size_t>& units, Access access, const std::function<void(size_t)>& work);

  const StateSwapperOptions options_;
  const TensorsOf tensors_of_;
  int file_ = -1;
  int64_t file_bytes_ = 0;
  size_t largest_unit_ = 0;  // bytes in a slot
  std::unordered_map<size_t, Unit> units_;
  std::vector<Slot> slots_;
  std::unique_ptr<io::AsyncIo> io_;  // after the memory that it uses
};

}  // namespace deepspeed::zero
