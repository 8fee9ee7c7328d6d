// Sums of gradients over the ranks that travel in 4 bits: within each node first, then between the nodes
// (Wang et al., "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", 2023,
// section 4.3). Each element crosses the links between nodes once a node in place of once a rank.
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

/// Error feedback of the quantization (Xie et al., "LoCo: Low-Bit Communication Adaptor for Large-scale Model
/// Training", 2024): what rounding took from a gradient is added to the next one.
struct LocoOptions {
  double err_beta = 0.8;   // of the error that is kept, how much the earlier one counts
  int64_t reset_T = 1024;  // sums after which errors are forgotten
};

/// What a rank alone keeps of its sums, as checkpoints hold it.
using NamedErrors = std::vector<std::pair<std::string, at::Tensor>>;

/// Works on the ranks that own the parts of a sum, which nodes hold in equal blocks one after another. All
/// ranks start the same sums in the same order, and wait in that order. Not thread-safe by itself.
class QuantizedSum {
 public:
  /// node: the owners on this rank's node; across: those at this rank's place on each node, this one at its
  /// node's place. With one rank a node or one node that exchange is left out. Without `loco` nothing is
  /// kept.
  QuantizedSum(comm::ProcessGroup node, comm::ProcessGroup across, std::optional<LocoOptions> loco);

  /// Sums `values`, (owners * n) fp32, fp16 or bf16, whose r-th block is owner r's. When the result is there,
  /// this rank's block holds its sum; the others are as they were. An element that is not finite on a rank
  /// makes its block of elements that share a scale NaN. key: names the sum among those of a backward, for
  /// its errors.
  comm::Work start(const at::Tensor& values, size_t key);

  /// Multiplies the errors that are kept, as gradients are by another loss scale; 0 forgets them.
  void scale_errors(double factor);
  /// Returns the errors by name; shared with this object, empty before the first sum.
  NamedErrors errors() const;
  /// Takes copies of errors() in place of its own. numels: [key], elements of an owner's block. Returns
  /// whether they fit these, and the nodes; where not, nothing is kept.
  bool load_errors(const NamedErrors& errors, const std::vector<int64_t>& numels, const at::Device& device);
  /// Bytes of the errors that are kept.
  int64_t bytes() const;

 private:
  /// Holds what rounding took in one exchange of one sum, itself rounded to 8 bits a block.
  struct Errors {
    std::vector<at::Tensor> packed;  // [block]
  };
  struct Kept {
    Errors within, between;
    int64_t block_numel = 0;
    int64_t num_sums = 0;
  };

  /// Quantizes a block to be sent, with what `errors` keep of it.
  void quantize(const at::Tensor& block, const at::Tensor& packed, Errors* errors, size_t index) const;
  /// Sums the own node's blocks, (nodes, n) fp32, of which `received` has the other ranks'.
  at::Tensor sum_within(const at::Tensor& values, const at::Tensor& received, int64_t numel) const;
  void sum_between(const at::Tensor& values, const at::Tensor& partial, Kept* kept) const;
  at::Tensor block(const at::Tensor& values, int node, int place) const;

  comm::ProcessGroup node_, across_;
  std::optional<LocoOptions> loco_;
  std::unordered_map<size_t, Kept> kept_;
};

}  // namespace deepspeed::zero
