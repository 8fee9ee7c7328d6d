#include "deepspeed/pipe/engine/batch_plan.h"

#include <algorithm>
#include <exception>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/on_all_ranks.h"

namespace deepspeed::pipe {
namespace {

// Says how a rank's reading ended.
enum class Outcome : int64_t { kRead = 0, kEnded = 1, kFailed = 2 };

constexpr int64_t kHead = 3;  // outcome, micro batches read, whether this rank reads

}  // namespace

BatchPlanner::BatchPlanner(comm::ProcessGroup ranks, int first_stage, bool reads_labels)
    : ranks_(std::move(ranks)),
      first_stage_(first_stage),
      reads_inputs_(ranks_.rank() == first_stage),
      reads_labels_(reads_labels) {}

int64_t BatchPlanner::number_of(const Form& form) {
  const auto found = std::ranges::find(forms_, form);
  if (found != forms_.end()) return found - forms_.begin();
  forms_.push_back(form);
  return int64_t(forms_.size()) - 1;
}

BatchPlan BatchPlanner::plan(const DataIterator& data, int count) {
  BatchPlan plan;
  const at::Tensor own = at::full({kHead + count}, -1, at::kLong);
  int64_t* const numbers = own.mutable_data_ptr<int64_t>();
  std::exception_ptr failure;
  numbers[0] = int64_t(Outcome::kRead);
  numbers[2] = reads_inputs_ || reads_labels_;
  try {
    if (numbers[2] != 0 && !data) {
      raise<UsageError>(
          "train_batch() and eval_batch() need data on the first and on the last stage: pass an "
          "iterator, or call set_dataloader() or set_dataiterator()");
    }
    while (numbers[2] != 0 && int(plan.micro_batches.size()) < count) {
      auto batch = data.next();
      if (!batch) {
        numbers[0] = int64_t(Outcome::kEnded);
        break;
      }
      if (reads_inputs_)
        numbers[kHead + int64_t(plan.micro_batches.size())] = number_of(form_of(batch->inputs));
      plan.micro_batches.push_back(std::move(*batch));
    }
  } catch (...) {
    failure = std::current_exception();
    numbers[0] = int64_t(Outcome::kFailed);
  }
  numbers[1] = int64_t(plan.micro_batches.size());
  const at::Tensor all = at::empty({ranks_.size() * own.numel()}, at::kLong);
  ranks_.all_gather(all, own);

  const int64_t* const gathered = all.const_data_ptr<int64_t>();
  const auto of_rank = [&](int rank) { return gathered + int64_t(rank) * own.numel(); };
  bool has_failed = false;
  for (int rank = 0; rank < ranks_.size(); ++rank)
    has_failed = has_failed || of_rank(rank)[0] == int64_t(Outcome::kFailed);
  if (has_failed) {
    comm::on_all_ranks<UsageError>(ranks_, "reading a batch", [&] {
      if (failure) std::rethrow_exception(failure);
    });
  }
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (of_rank(rank)[0] != int64_t(Outcome::kEnded)) continue;
    throw EndOfData(message("the data of rank ", rank, " ended after ", of_rank(rank)[1], " of the ", count,
                            " micro batches of a batch; give all data-parallel ranks a multiple of "
                            "gradient_accumulation_steps, or a loader that repeats"),
                    int(of_rank(rank)[1]));
  }
  const int64_t* const forms = of_rank(first_stage_) + kHead;
  plan.input_forms.assign(forms, forms + count);
  return plan;
}

}  // namespace deepspeed::pipe
