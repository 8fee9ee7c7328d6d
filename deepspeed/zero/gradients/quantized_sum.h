// Sums gradients over ranks in 4 bits: first within each node, then between nodes (Wang et al., "ZeRO++:
// Extremely Efficient Collective Communication for Giant Model Training", 2023, section 4.3). Each element
// crosses the links between nodes once per node instead of once per rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::zero {

/// Configures error feedback: a gradient's rounding error is added to the next one. See Xie et al., "LoCo:
/// Low-Bit Communication Adaptor for Large-scale Model Training", 2024.
struct LocoOptions {
  double err_beta = 0.8;   // weight of the earlier error in the kept one
  int64_t reset_T = 1024;  // sums after which errors are forgotten
};

/// Holds the errors that only this rank keeps, as checkpoints store them.
using NamedErrors = std::vector<std::pair<std::string, at::Tensor>>;

/// Sums values over ranks, each of which owns a block of the result. Nodes have equal numbers of consecutive
/// ranks. All ranks start and wait for the same sums in the same order. Not thread-safe.
class QuantizedSum {
 public:
  /// node: the ranks on this rank's node. across: from each node, the rank at this rank's place; they are
  /// numbered by node. An exchange in a group of one rank is left out. Without `loco` no errors are kept.
  QuantizedSum(comm::ProcessGroup node, comm::ProcessGroup across, std::optional<LocoOptions> loco);

  /// Starts the sum of `values`, (ranks * n) fp32, fp16 or bf16. The r-th block belongs to rank r. On
  /// completion this rank's block holds its sum; the other blocks are unchanged. A non-finite element on a
  /// rank makes all elements that share its scale NaN. key: identifies the sum within a backward, for its
  /// errors.
  comm::Work start(const at::Tensor& values, size_t key);

  /// Multiplies the kept rounding errors, as for a new loss scale; 0 forgets them.
  void scale_errors(double factor);
  /// Returns the kept rounding errors by name. Tensors are shared; empty before the first sum.
  NamedErrors errors() const;
  /// Replaces the errors by copies of errors() of another run. numels: [key], elements of a rank's block.
  /// Returns whether the errors fit `numels` and the nodes; if not, no errors are kept.
  bool load_errors(const NamedErrors& errors, const std::vector<int64_t>& numels, const at::Device& device);
  /// Returns the bytes of the kept errors.
  int64_t bytes() const;

 private:
  /// Holds the rounding errors of one exchange of one sum, themselves rounded to 8 bits.
  struct Errors {
    std::vector<at::Tensor> packed;  // [block]
  };
  struct Kept {
    Errors within, between;
    int64_t block_numel = 0;
    int64_t num_sums = 0;
  };

  /// Quantizes a block into `packed` for sending. Unless `errors` is null, first adds errors->packed[index],
  /// then updates it.
  void quantize(const at::Tensor& block, const at::Tensor& packed, Errors* errors, size_t index) const;
  /// Sums this node's contributions to the owners at this rank's place: (nodes, n) fp32. `received` holds the
  /// other ranks' contributions.
  at::Tensor sum_within(const at::Tensor& values, const at::Tensor& received, int64_t numel) const;
  void sum_between(const at::Tensor& values, const at::Tensor& partial, Kept* kept) const;
  at::Tensor block(const at::Tensor& values, int node, int place) const;

  comm::ProcessGroup node_, across_;
  std::optional<LocoOptions> loco_;
  std::unordered_map<size_t, Kept> kept_;
};

}  // namespace deepspeed::zero
