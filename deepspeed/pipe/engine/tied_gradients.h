// Keeps the copies of tied weights equal on different stages.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deepspeed/comm/init.h"
#include "deepspeed/pipe/module/pipeline_module.h"

namespace deepspeed::zero {
class ZeroOptimizer;
}

namespace deepspeed::pipe {

class TiedGradients {
 public:
  /// Makes the groups of ranks that share weights. Their names begin with `name`, the engine's; `purpose` is
  /// as in World::own_group(). Collective over these ranks. The module must outlive this object.
  TiedGradients(const PipelineModule& module, const std::string& name, const std::string& purpose);

  bool empty() const { return groups_.empty(); }
  /// Copies each tied weight from the first stage that has it to all other copies.
  void broadcast_weights() const;
  /// Sums the gradients of a weight's copies, and writes the sum to each copy's gradient. Call it after each
  /// stage has reduced its gradients among its data-parallel ranks, and before the step.
  void reduce(zero::ZeroOptimizer& optimizer) const;
  /// Returns the groups that gradients are summed over.
  std::vector<comm::ProcessGroup> groups() const;

 private:
  const comm::ProcessGroup& group_of(const TiedWeight& weight) const { return groups_.at(weight.stages); }

  const PipelineModule& module_;
  std::map<std::vector<int>, comm::ProcessGroup> groups_;  // all ranks of these stages, by stages
};

}  // namespace deepspeed::pipe
