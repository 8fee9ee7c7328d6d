// A pass over units whose tensors are in a file, as a pipeline of one to three slots of memory.
//
// For each unit, for_each() does the following. It waits for the unit's read; with pipeline_read the next
// unit's read is started into the next slot. bind() makes the unit's tensors point into its slot, and the
// caller's work runs. take_back() copies tensors that the work has replaced, and the write is started.
// take_over() adds new tensors, for example moments after the first step. unbind() leaves the tensors without
// elements. Without pipeline_write it then waits for the write; otherwise the wait comes before its slot is
// read into again (start_read).
//
// The first pass makes the file grow. Each new tensor gets its place by fallocate, so that a full disk is an
// error here and not in a write.
#include "deepspeed/zero/offload/state_swapper.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/system/clock.h"
#include "deepspeed/device/large_blocks.h"

namespace deepspeed::zero {

StateSwapper::StateSwapper(StateSwapperOptions options, TensorsOf tensors_of)
    : options_(std::move(options)),
      tensors_of_(std::move(tensors_of)),
      file_(options_.folder, "offload_optimizer.nvme_path") {
  make_slots();
}

size_t StateSwapper::num_slots() const {
  return 1 + size_t(options_.pipeline_read) + size_t(options_.pipeline_write);
}

int64_t StateSwapper::buffer_bytes() const {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) bytes += int64_t(slot.memory.size());
  return bytes;
}

/// Makes the slots as large as the largest unit. No transfer may be in flight.
void StateSwapper::make_slots() {
  if (io_ && slots_.front().memory.size() >= largest_unit_) return;
  io_.reset();
  slots_.clear();
  std::vector<io::MemoryRegion> regions;
  for (size_t index = 0; index < num_slots(); ++index) {
    slots_.push_back({io::AlignedBuffer(largest_unit_), {}, {}});
    if (largest_unit_ > 0) regions.push_back({slots_.back().memory.data(), largest_unit_});
  }
  io_ = std::make_unique<io::AsyncIo>(options_.aio, regions);
}

void StateSwapper::add_extent(Unit& unit, const at::Tensor& tensor) {
  if (!tensor.is_contiguous() || !tensor.is_cpu()) {
    raise<UsageError>("a tensor on ", tensor.device(), ", expected a contiguous one on the CPU");
  }
  const size_t bytes = tensor.nbytes(), reserved = io::align_up(bytes);
  if (int64_t(unit.extents.size()) >= options_.buffer_count) {
    raise<ConfigError>("offload_optimizer.buffer_count is ", options_.buffer_count,
                       ", but each sub-group of this optimizer has more tensors on the disk; raise it");
  }
  const uint64_t begin = file_.grow(reserved, "optimizer states");
  unit.extents.push_back({begin, bytes, unit.slot_bytes, tensor.sizes().vec()});
  unit.slot_bytes += reserved;
}

/// Gives a unit's new tensors places in the file, and writes them there.
void StateSwapper::take_over(size_t number) {
  const std::vector<at::Tensor> tensors = tensors_of_(number);
  Unit& unit = units_[number];
  unit.is_complete = unit.extents.size() == tensors.size();
  for (size_t index = unit.extents.size(); index < tensors.size(); ++index) {
    add_extent(unit, tensors[index]);
    const Extent& extent = unit.extents.back();
    if (extent.bytes == 0) continue;
    const io::AlignedBuffer copy(std::max(io::align_up(extent.bytes), io::kDirectAlignment));
    std::memcpy(copy.data(), tensors[index].const_data_ptr(), extent.bytes);
    const uint64_t ticket = io_->start({io::Transfer::Kind::kWrite, file_.handle(), copy.data(),
                                        io::align_up(extent.bytes), extent.in_file});
    check(io_->wait(ticket).error, "write");
  }
  largest_unit_ = std::max(largest_unit_, unit.slot_bytes);
}

void StateSwapper::bind(size_t number, const Slot& slot) const {
  const std::vector<at::Tensor> tensors = tensors_of_(number);
  const Unit& unit = units_.at(number);
  for (size_t index = 0; index < unit.extents.size(); ++index) {
    const Extent& extent = unit.extents[index];
    tensors[index].set_data(
        at::from_blob(slot.memory.data() + extent.in_slot, extent.sizes, tensors[index].options()));
  }
}

void StateSwapper::take_back(size_t number, const Slot& slot) const {
  const std::vector<at::Tensor> tensors = tensors_of_(number);
  const Unit& unit = units_.at(number);
  for (size_t index = 0; index < unit.extents.size(); ++index) {
    const Extent& extent = unit.extents[index];
    const at::Tensor& tensor = tensors.at(index);
    char* const place = slot.memory.data() + extent.in_slot;
    if (tensor.const_data_ptr() == place || extent.bytes == 0) continue;
    if (tensor.nbytes() != extent.bytes || !tensor.is_contiguous() || !tensor.is_cpu()) {
      raise<UsageError>("a tensor of ", tensor.nbytes(), " bytes on ", tensor.device(),
                        " in the place of one of ", extent.bytes, ", expected a contiguous one on the CPU");
    }
    std::memcpy(place, tensor.const_data_ptr(), extent.bytes);
  }
}

void StateSwapper::unbind(size_t number) const {
  const std::vector<at::Tensor> tensors = tensors_of_(number);
  for (size_t index = 0; index < units_.at(number).extents.size(); ++index)
    tensors[index].set_data(at::empty({0}, tensors[index].options()));
}

StateSwapper::Transfers StateSwapper::start(SwapSpan::Kind kind, size_t number, const Slot& slot) {
  Transfers transfers{{}, {kind, number, Clock::now(), {}}};
  const auto io_kind = kind == SwapSpan::Kind::kRead ? io::Transfer::Kind::kRead : io::Transfer::Kind::kWrite;
  for (const Extent& extent : units_[number].extents) {
    if (extent.bytes == 0) continue;
    transfers.tickets.push_back(io_->start({io_kind, file_.handle(), slot.memory.data() + extent.in_slot,
                                            io::align_up(extent.bytes), extent.in_file}));
  }
  return transfers;
}

void StateSwapper::start_read(size_t number, Slot& slot) {
  finish(slot.writes);
  slot.reads = start(SwapSpan::Kind::kRead, number, slot);
}

void StateSwapper::start_write(size_t number, Slot& slot) {
  slot.writes = start(SwapSpan::Kind::kWrite, number, slot);
}

void StateSwapper::finish(Transfers& transfers) {
  if (transfers.tickets.empty()) return;
  int error = 0;
  for (const uint64_t ticket : std::exchange(transfers.tickets, {})) {
    const io::Completion done = io_->wait(ticket);
    if (error == 0) error = done.error;
  }
  check(error, transfers.span.kind == SwapSpan::Kind::kRead ? "read" : "write");
  observe(transfers.span);
}

void StateSwapper::observe(const SwapSpan& span) const {
  if (options_.observe) options_.observe({span.kind, span.unit, span.begin, Clock::now()});
}

void StateSwapper::check(int error, const char* what) const {
  if (error == 0) return;
  raise<IoError>("offload_optimizer.nvme_path: cannot ", what, " the optimizer states in ", options_.folder,
                 ": ", std::strerror(error));
}

/// Awaits all transfers after an error. Their results no longer matter, but they use the slots.
void StateSwapper::finish_all() noexcept {
  for (Slot& slot : slots_) {
    for (Transfers* transfers : {&slot.reads, &slot.writes}) {
      try {
        finish(*transfers);
      } catch (const std::exception&) {
        // for_each() throws the first error.
      }
    }
  }
}

void StateSwapper::step_through(const std::vector<size_t>& units, Access access,
                                const std::function<void(size_t)>& work) {
  for (size_t index = 0; index < units.size(); ++index) {
    const size_t unit = units[index];
    Slot& slot = slots_[index % slots_.size()];
    if (index == 0 || !options_.pipeline_read) start_read(unit, slot);
    finish(slot.reads);
    if (options_.pipeline_read && index + 1 < units.size())
      start_read(units[index + 1], slots_[(index + 1) % slots_.size()]);
    bind(unit, slot);
    try {
      const SwapSpan span{SwapSpan::Kind::kWork, unit, Clock::now(), {}};
      work(unit);
      observe(span);
      if (access == Access::kChange) {
        take_back(unit, slot);
        start_write(unit, slot);
        take_over(unit);
      }
    } catch (...) {
      unbind(unit);
      throw;
    }
    unbind(unit);
    if (!options_.pipeline_write) finish(slot.writes);
  }
  for (Slot& slot : slots_) finish(slot.writes);
}

bool StateSwapper::are_complete(const std::vector<size_t>& units) const {
  return std::ranges::all_of(units, [&](size_t number) {
    const auto unit = units_.find(number);
    return unit != units_.end() && unit->second.is_complete;
  });
}

void StateSwapper::for_each(const std::vector<size_t>& units, Access access,
                            const std::function<void(size_t)>& work) {
  make_slots();
  // New tensors come and go with their unit, between allocations that stay. On the heap their gaps would add
  // up.
  std::optional<device::LargeBlocksInPages> pages;
  if (access == Access::kChange && !are_complete(units)) pages.emplace();
  try {
    step_through(units, access, work);
  } catch (...) {
    finish_all();
    throw;
  }
}

}  // namespace deepspeed::zero
