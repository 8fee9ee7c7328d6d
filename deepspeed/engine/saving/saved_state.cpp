#include "deepspeed/engine/saving/saved_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

using checkpoint::DeferredTensors;
using checkpoint::PieceSink;

constexpr int64_t kWrittenNumel = int64_t{1} << 22;  // of a piece: 16 MiB

void pass_on(const at::Tensor& values, const PieceSink& sink) {
  const at::Tensor here = values.cpu().contiguous();
  if (here.numel() > 0) sink(here.const_data_ptr(), here.nbytes());
}

/// Masters as the files hold them: fp32, but fp64 where they are.
at::Tensor in_full(const at::Tensor& masters) {
  return masters.scalar_type() == at::kDouble ? masters : masters.to(at::kFloat);
}

/// Elements of `part`, in whose group's flat space they begin at `begin`.
Interval shifted(const Interval& part, int64_t begin) { return {begin + part.begin, begin + part.end}; }

/// Gives masters that are made of what is in memory.
DeferredTensors::Source made_masters(zero::ZeroOptimizer& optimizer, size_t group, int64_t begin) {
  return [&optimizer, group, begin](const Interval& part, const PieceSink& sink) {
    const Interval wanted = shifted(part, begin);
    for (int64_t first = wanted.begin; first < wanted.end; first += kWrittenNumel) {
      const Interval piece{first, std::min(first + kWrittenNumel, wanted.end)};
      pass_on(in_full(optimizer.state().of(group, piece).master), sink);
    }
  };
}

at::Tensor tensor_of(const zero::StateSlice& slice, const std::string& name) {
  for (const auto& [own, tensor] : slice.state.tensors) {
    if (own == name) return tensor;
  }
  return slice.master;
}

/// Gives a state tensor, or with no name the masters, read slice by slice: those on a disk are one after the
/// other in memory.
DeferredTensors::Source read_slices(zero::ZeroOptimizer& optimizer, size_t group, int64_t begin,
                                    std::string name) {
  return [&optimizer, group, begin, name = std::move(name)](const Interval& part, const PieceSink& sink) {
    const Interval wanted = shifted(part, begin);
    optimizer.state().read(group, wanted, [&](const zero::StateSlice& slice) {
      const at::Tensor whole = tensor_of(slice, name);
      const Interval common = intersect(slice.interval, wanted);
      const Interval piece{common.begin - slice.interval.begin, common.end - slice.interval.begin};
      for (int64_t first = piece.begin; first < piece.end; first += kWrittenNumel) {
        const at::Tensor values = whole.narrow(0, first, std::min(kWrittenNumel, piece.end - first));
        pass_on(name.empty() ? in_full(values) : values, sink);
      }
    });
  };
}

}  // namespace

zero::GroupState saved_state(zero::ZeroOptimizer& optimizer, size_t group, const Interval& part,
                             DeferredTensors& deferred) {
  if (const auto on_disk = optimizer.state().on_disk(group, part)) {
    zero::GroupState result{deferred.add(part.numel(), optimizer.store().master_dtype(group),
                                         read_slices(optimizer, group, part.begin, "")),
                            {{}, on_disk->step}};
    for (const auto& [name, tensor] : on_disk->tensors) {
      result.state.tensors.emplace_back(name, deferred.add(part.numel(), tensor.scalar_type(),
                                                           read_slices(optimizer, group, part.begin, name)));
    }
    return result;
  }
  if (optimizer.state().makes_fp32_masters()) {
    zero::GroupState result = optimizer.state().beside_masters(group, part);
    // Weights on a disk are read by whole slices.
    const bool reads_weights = optimizer.store().home() == zero::ParamHome::kDisk;
    result.master = deferred.add(part.numel(), at::kFloat,
                                 reads_weights ? read_slices(optimizer, group, part.begin, "")
                                               : made_masters(optimizer, group, part.begin));
    return result;
  }
  zero::GroupState result = optimizer.state().of(group, part);
  result.master = in_full(result.master);
  return result;
}

at::Tensor saved_shard(const at::Tensor& param, DeferredTensors& deferred) {
  const int64_t on_disk = zero::disk_bytes(param);
  if (on_disk == 0) {
    const at::Tensor shard = zero::shard_of(param);
    return shard.defined() ? shard.cpu() : shard;
  }
  return deferred.add(on_disk / param.element_size(), param.scalar_type(),
                      [param](const Interval& part, const PieceSink& sink) {
                        pass_on(zero::shard_of(param).narrow(0, part.begin, part.numel()), sink);
                      });
}

}  // namespace deepspeed
