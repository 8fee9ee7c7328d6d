// Keeps the copies of tied weights on different stages alike.
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
  /// Makes the groups of ranks that share weights, named after the engine. Collective over them. The module
  /// must outlive this.
  TiedGradients(const PipelineModule& module, const std::string& name, const std::string& purpose);

  bool empty() const { return groups_.empty(); }
  /// Gives all copies the values of the first stage that has one.
  void broadcast_weights() const;
  /// Sums the gradients of the copies, each of which has been reduced among its data-parallel ranks, into all
  /// of them. Call it between that and the step.
  void reduce(zero::ZeroOptimizer& optimizer) const;
  /// Ends the groups on all ranks with this reason.
  void give_up(const std::string& reason) const;

 private:
  const comm::ProcessGroup& group_of(const TiedWeight& weight) const { return groups_.at(weight.stages); }

  const PipelineModule& module_;
  std::map<std::vector<int>, comm::ProcessGroup> groups_;  // of all ranks of these stages, by stages
};

}  // namespace deepspeed::pipe
