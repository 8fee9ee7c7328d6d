// Optimizer state on a disk. Tensors of a unit (a sub-group's masters and moments) are in memory only while
// the unit is stepped. Meanwhile the next unit is read and the last one written.
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
#include "deepspeed/io/scratch_file.h"

namespace deepspeed::zero {

/// Describes a time span: the work on a unit, or a transfer with its wait.
struct SwapSpan {
  enum class Kind { kRead, kWork, kWrite };
  using Time = std::chrono::steady_clock::time_point;
  Kind kind = Kind::kWork;
  size_t unit = 0;
  Time begin, end;
};

struct StateSwapperOptions {
  std::filesystem::path folder = {};  // created if it does not exist
  io::AsyncIoOptions aio = {};
  int64_t buffer_count = 4;                                // tensors in memory, in each stage of the pipeline
  bool pipeline_read = false;                              // read the next unit while one is stepped
  bool pipeline_write = false;                             // step the next unit while the last one is written
  std::function<void(const SwapSpan&)> observe = nullptr;  // called for each part of a pass, for timelines
};

/// Keeps one rank's optimizer state in a file, and loads it unit by unit. Used by one thread. The file has no
/// name and disappears with the process, however that ends.
class StateSwapper {
 public:
  /// Returns a unit's tensors that the disk keeps: contiguous CPU tensors in a fixed order. Later calls may
  /// return more.
  using TensorsOf = std::function<std::vector<at::Tensor>(size_t unit)>;
  enum class Access { kRead, kChange };

  /// Creates the file. Throws IoError naming the folder if it cannot be created.
  StateSwapper(StateSwapperOptions options, TensorsOf tensors_of);
  StateSwapper(const StateSwapper&) = delete;
  StateSwapper& operator=(const StateSwapper&) = delete;

  /// Calls `work` with each unit in order. The unit's tensors have their data only during that call. With
  /// kChange the new values are written to the disk, and so are tensors that are new or that `work` replaced
  /// by others of the same size. With kRead nothing is written. Throws IoError naming folder and bytes if the
  /// disk is full or fails. Throws ConfigError if buffer_count is too small for a unit. After an error, units
  /// not in memory are unchanged.
  void for_each(const std::vector<size_t>& units, Access access, const std::function<void(size_t)>& work);

  /// Returns the bytes of the memory through which units pass.
  int64_t buffer_bytes() const;
  /// Returns the bytes on the disk.
  int64_t file_bytes() const { return file_.bytes(); }

 private:
  /// Describes a tensor's place in the file and in its unit's slot of memory.
  struct Extent {
    uint64_t in_file = 0;
    size_t bytes = 0;  // of its elements
    size_t in_slot = 0;
    std::vector<int64_t> sizes;
  };
  struct Unit {
    std::vector<Extent> extents;
    size_t slot_bytes = 0;
    bool is_complete = false;  // a whole pass found no new tensor
  };
  /// Holds the transfers of a unit.
  struct Transfers {
    std::vector<uint64_t> tickets;
    SwapSpan span;
  };
  /// Holds memory for one unit.
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
  io::ScratchFile file_;
  size_t largest_unit_ = 0;  // bytes in a slot
  std::unordered_map<size_t, Unit> units_;
  std::vector<Slot> slots_;
  std::unique_ptr<io::AsyncIo> io_;  // declared last: it stops before the memory it uses is freed
};

}  // namespace deepspeed::zero
