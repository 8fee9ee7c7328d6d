// What all stages know of a batch before it goes through the pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/pipe/engine/data_iterator.h"
#include "deepspeed/pipe/exchange/form.h"

namespace deepspeed::pipe {

/// The micro batches of a stage and the forms of the model's inputs.
struct BatchPlan {
  std::vector<MicroBatch> micro_batches;  // of the first and the last stage
  std::vector<int64_t> input_forms;  // [micro batch]: number of the form of the inputs, alike on all ranks

  int size() const { return int(input_forms.size()); }
};

/// Makes plans: the first and the last stage read their data ahead, and all ranks agree on how much there is.
class BatchPlanner {
 public:
  /// `ranks`: all of the engine; `first_stage`: the one of them that reads the inputs of this pipeline.
  /// reads_labels: this stage is the last one.
  BatchPlanner(comm::ProcessGroup ranks, int first_stage, bool reads_labels);

  /// Reads `count` micro batches where this stage reads any. Collective. Throws, on all ranks alike,
  /// UsageError where a stage that reads has no data, EndOfData where there are less than `count`, and what
  /// reading threw.
  BatchPlan plan(const DataIterator& data, int count);

 private:
  int64_t number_of(const Form& form);

  comm::ProcessGroup ranks_;
  int first_stage_;
  bool reads_inputs_;
  bool reads_labels_;
  std::vector<Form> forms_;  // of inputs, by number; the first stage's alone
};

}  // namespace deepspeed::pipe
