#include "deepspeed/pipe/analysis/figures.h"

#include <algorithm>
#include <map>
#include <queue>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/analysis/channels.h"
#include "deepspeed/pipe/schedule/interleaved_schedule.h"
#include "deepspeed/pipe/schedule/make_schedule.h"

namespace deepspeed::pipe {

using enum InstructionKind;

namespace {

double cost_of(InstructionKind kind, const PassCosts& costs) {
  switch (kind) {
    case kForwardPass:
      return costs.forward;
    case kBackwardPass:
      return costs.backward_input + costs.backward_weight;
    case kBackwardInput:
      return costs.backward_input;
    case kBackwardWeight:
      return costs.backward_weight;
    default:
      return 0;
  }
}

/// Holds the clocks of all stages, which each execute their instructions in order.
class Clocks {
 public:
  Clocks(const PipelineSteps& pipeline, const PassCosts& costs)
      : pipeline_(pipeline), costs_(costs), times_(pipeline.num_stages(), 0) {
    for (const auto& steps : pipeline.stages) {
      auto& instructions = waiting_.emplace_back();
      for (const auto& step : steps) instructions.insert(instructions.end(), step.begin(), step.end());
    }
    next_.resize(waiting_.size(), 0);
  }

  /// Executes all instructions that a stage can execute now. Returns whether there were any.
  bool advance(int stage) {
    const size_t before = next_[stage];
    while (next_[stage] < waiting_[stage].size() && execute(stage, waiting_[stage][next_[stage]]))
      ++next_[stage];
    return next_[stage] > before;
  }
  bool is_done() const {
    for (size_t stage = 0; stage < waiting_.size(); ++stage) {
      if (next_[stage] < waiting_[stage].size()) return false;
    }
    return true;
  }
  double latest() const { return *std::max_element(times_.begin(), times_.end()); }

 private:
  bool execute(int stage, const Instruction& instruction) {
    double& time = times_[stage];
    if (is_send(instruction.kind)) {
      sent_[channel_of(instruction, stage, pipeline_.num_stages())].push(time);
    } else if (is_receive(instruction.kind)) {
      auto& arrivals = sent_[channel_of(instruction, stage, pipeline_.num_stages())];
      if (arrivals.empty()) return false;
      time = std::max(time, arrivals.front());
      arrivals.pop();
    }
    time += cost_of(instruction.kind, costs_) / pipeline_.model_chunks;
    return true;
  }

  const PipelineSteps& pipeline_;
  const PassCosts& costs_;
  std::vector<double> times_;
  std::vector<std::vector<Instruction>> waiting_;
  std::vector<size_t> next_;
  std::map<Channel, std::queue<double>> sent_;
};

}  // namespace

double ideal_time(int micro_batches, const PassCosts& costs) {
  return micro_batches * (costs.forward + costs.backward_input + costs.backward_weight);
}

double simulated_time(const PipelineSteps& pipeline, const PassCosts& costs) {
  Clocks clocks(pipeline, costs);
  while (!clocks.is_done()) {
    bool moved = false;
    for (int stage = 0; stage < pipeline.num_stages(); ++stage) moved |= clocks.advance(stage);
    if (!moved) raise<UsageError>("the stages of the schedule wait for each other for ever");
  }
  return clocks.latest();
}

double bubble_formula(const std::string& kind, int micro_batches, int stages, int model_chunks,
                      const PassCosts& costs) {
  make_train_schedule(kind, micro_batches, stages, 0, model_chunks);  // throws for what does not exist
  const double ideal = ideal_time(micro_batches, costs);
  const double all = ideal / micro_batches;
  if (kind == "1f1b") return (stages - 1) * all / ideal;
  if (kind == "interleaved") {
    const double passes =
        std::max(micro_batches, stages) + double(std::min(micro_batches, stages) - 1) / model_chunks;
    return passes * all / ideal - 1;
  }
  const double waited_for = (micro_batches + stages - 1) * (costs.forward + costs.backward_input);
  return (waited_for + std::max(micro_batches - stages + 1, 1) * costs.backward_weight) / ideal - 1;
}

int peak_activations(const Steps& steps) {
  int held = 0;
  int most = 0;
  for (const auto& step : steps) {
    for (const auto& instruction : step) {
      held += int(instruction.kind == kForwardPass);
      most = std::max(most, held);
      held -= int(instruction.kind == kBackwardPass || instruction.kind == kBackwardWeight);
    }
  }
  return most;
}

int peak_activations_formula(const std::string& kind, int micro_batches, int stages, int stage,
                             int model_chunks) {
  make_train_schedule(kind, micro_batches, stages, stage, model_chunks);  // throws for what does not exist
  if (kind == "1f1b") return std::min(stages - stage, micro_batches);
  if (kind == "zero_bubble") return std::min(stages, micro_batches);
  const int group = interleaved_groups(micro_batches, stages).front();
  const int in_flight = 2 * (stages - 1 - stage) + (model_chunks - 1) * group + 1;
  return std::min(model_chunks * micro_batches, in_flight);
}

}  // namespace deepspeed::pipe
