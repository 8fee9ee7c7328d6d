// What all stages know of a batch before it enters the pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/pipe/engine/data_iterator.h"
#include "deepspeed/pipe/exchange/form.h"

namespace deepspeed::pipe {

/// Holds a stage's micro batches and the forms (exchange/form.h) of the model's inputs.
struct BatchPlan {
  std::vector<MicroBatch> micro_batches;  // on the first and the last stage
  std::vector<int64_t> input_forms;       // [micro batch]: number of its inputs' form, equal on all ranks

  int size() const { return int(input_forms.size()); }
};

/// Makes the plans of batches. The first and the last stage read a batch's data before it runs, and all ranks
/// agree on the amount.
class BatchPlanner {
 public:
  /// `ranks`: all ranks of the engine. `first_stage`: the rank among them that reads this pipeline's inputs.
  /// `reads_labels`: whether this is the last stage.
  BatchPlanner(comm::ProcessGroup ranks, int first_stage, bool reads_labels);

  /// Reads `count` micro batches, if this stage reads data. Collective. Throws on all ranks: UsageError if a
  /// stage that reads data got none, EndOfData if there are fewer than `count` micro batches, and any error
  /// of reading.
  BatchPlan plan(const DataIterator& data, int count);

 private:
  int64_t number_of(const Form& form);

  comm::ProcessGroup ranks_;
  int first_stage_;
  bool reads_inputs_;
  bool reads_labels_;
  std::vector<Form> forms_;  // forms of inputs, by number; only on the first stage
};

}  // namespace deepspeed::pipe
