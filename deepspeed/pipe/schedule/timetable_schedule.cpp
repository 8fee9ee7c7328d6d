#include "deepspeed/pipe/schedule/timetable_schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "deepspeed/base/error.h"

namespace deepspeed::pipe {

using enum InstructionKind;

namespace {

/// Numbers buffers: each micro batch of each chunk takes the lowest free one.
class BufferAllocator {
 public:
  int hold(const Pass& pass) {
    const auto [found, is_new] = held_.try_emplace({pass.model_chunk, pass.micro_batch}, 0);
    if (is_new) found->second = take();
    return found->second;
  }
  void give_back(const Pass& pass) {
    const auto found = held_.find({pass.model_chunk, pass.micro_batch});
    is_taken_[found->second] = false;
    held_.erase(found);
  }

 private:
  int take() {
    const auto free = std::find(is_taken_.begin(), is_taken_.end(), false);
    const auto buffer = static_cast<int>(free - is_taken_.begin());
    if (free == is_taken_.end()) is_taken_.push_back(true);
    is_taken_[buffer] = true;
    return buffer;
  }
  std::map<std::pair<int, int>, int> held_;
  std::vector<bool> is_taken_;
};

bool ends_use(InstructionKind kind) { return kind == kBackwardPass || kind == kBackwardWeight; }

}  // namespace

Peer peer_of(const Instruction& instruction, int stage, int stages) {
  if (!is_send(instruction.kind) && !is_receive(instruction.kind)) {
    raise<UsageError>(name_of(instruction.kind), " concerns no other stage, expected a send or a receive");
  }
  const bool to_next = instruction.kind == kSendActivation || instruction.kind == kRecvGrad;
  const int chunk = instruction.model_chunk;
  if (to_next) return stage + 1 < stages ? Peer{stage + 1, chunk} : Peer{0, chunk + 1};
  return stage > 0 ? Peer{stage - 1, chunk} : Peer{stages - 1, chunk - 1};
}

TimetableSchedule::TimetableSchedule(int micro_batches, int stages, int stage_id, int model_chunks)
    : PipeSchedule(micro_batches, stages, stage_id), shape_{micro_batches, stages, model_chunks} {}

std::vector<Instruction> TimetableSchedule::instructions_of(const Pass& pass, int buffer) const {
  const bool begins_model = is_first_stage() && pass.model_chunk == 0;
  const bool ends_model = is_last_stage() && pass.model_chunk == shape_.model_chunks - 1;
  std::vector<Instruction> result;
  const auto add = [&](bool wanted, InstructionKind kind) {
    if (wanted) result.push_back({kind, buffer, pass.micro_batch, pass.model_chunk});
  };
  const bool is_forward = pass.kind == kForwardPass;
  const bool is_backward = pass.kind == kBackwardPass || pass.kind == kBackwardInput;
  add(is_forward && !begins_model, kRecvActivation);
  add(is_backward && !ends_model, kRecvGrad);
  add(is_forward && (begins_model || ends_model), kLoadMicroBatch);
  add(true, pass.kind);
  add(is_forward && !ends_model, kSendActivation);
  add(is_backward && !begins_model, kSendGrad);
  return result;
}

TimetableRow TimetableSchedule::row() const {
  auto rows = timetable();
  return std::move(rows[stage()]);
}

Steps TimetableSchedule::steps() const {
  BufferAllocator buffers;
  Steps result;
  for (const auto& pass : row()) {
    auto& step = result.emplace_back();
    if (!pass) continue;
    step = instructions_of(*pass, buffers.hold(*pass));
    if (ends_use(pass->kind)) buffers.give_back(*pass);
  }
  for (const auto kind : {kReduceTiedGrads, kReduceGrads, kOptimizerStep}) result.back().push_back({kind});
  return result;
}

int TimetableSchedule::num_pipe_buffers() const {
  int held = 0;
  int most = 0;
  for (const auto& pass : row()) {
    if (!pass) continue;
    held += int(pass->kind == kForwardPass);
    most = std::max(most, held);
    held -= int(ends_use(pass->kind));
  }
  return most;
}

}  // namespace deepspeed::pipe
