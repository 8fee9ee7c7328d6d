// There is a function for each property listed at fault_of(). A function returns the first fault as a text,
// or an empty text.
#include "deepspeed/pipe/analysis/checker.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "deepspeed/base/message.h"
#include "deepspeed/pipe/analysis/channels.h"

namespace deepspeed::pipe {

using enum InstructionKind;

namespace {

using MicroBatchOfChunk = std::pair<int, int>;  // micro batch, chunk

std::string described(const Instruction& instruction, int stage) {
  return message("stage ", stage, ": ", to_string(instruction), " of micro batch ", instruction.micro_batch,
                 ", chunk ", instruction.model_chunk);
}

bool has_backward(const PipelineSteps& pipeline) {
  for (const auto& step : pipeline.stages.front()) {
    for (const auto& instruction : step) {
      if (is_compute(instruction.kind) && instruction.kind != kForwardPass) return true;
    }
  }
  return false;
}

/// Checks one stage: passes done for each micro batch, and buffers in use.
class StageCheck {
 public:
  StageCheck(const PipelineSteps& pipeline, int stage, bool trains)
      : pipeline_(pipeline), stage_(stage), trains_(trains), holders_(pipeline.num_buffers[stage]) {}

  std::string fault() {
    for (const auto& step : pipeline_.stages[stage_]) {
      for (const auto& instruction : step) {
        const char* wrong = instruction.buffer_id < 0 ? end_batch(instruction) : execute(instruction);
        if (wrong != nullptr) return described(instruction, stage_) + ": " + wrong;
      }
    }
    return missing();
  }

 private:
  using Done = std::set<InstructionKind>;

  bool begins_model(int chunk) const { return stage_ == 0 && chunk == 0; }
  bool ends_model(int chunk) const {
    return stage_ == pipeline_.num_stages() - 1 && chunk == pipeline_.model_chunks - 1;
  }

  const char* execute(const Instruction& instruction) {
    if (!ending_.empty()) return "it comes after gradients are reduced";
    if (instruction.micro_batch < 0 || instruction.micro_batch >= pipeline_.micro_batches) {
      return "there is no such micro batch";
    }
    const MicroBatchOfChunk about{instruction.micro_batch, instruction.model_chunk};
    if (const char* wrong = hold_buffer(instruction.buffer_id, about)) return wrong;
    Done& done = done_[about];
    if (!needs_are_done(instruction, done)) return "what it needs is not there";
    return done.insert(instruction.kind).second ? nullptr : "it comes twice";
  }

  const char* hold_buffer(int buffer, const MicroBatchOfChunk& about) {
    if (buffer >= int(holders_.size())) return "there is no such buffer";
    auto& holder = holders_[buffer];
    if (holder == about) return nullptr;
    if (done_.count(about) != 0) return "it has been in another buffer";
    if (holder && !is_finished(*holder)) return "it overwrites a buffer that is in use";
    holder = about;
    return nullptr;
  }

  bool needs_are_done(const Instruction& instruction, const Done& done) const {
    const int chunk = instruction.model_chunk;
    const bool is_load_needed = begins_model(chunk) || ends_model(chunk);
    const auto has = [&](InstructionKind kind) { return done.count(kind) != 0; };
    switch (instruction.kind) {
      case kLoadMicroBatch:
        return is_load_needed;
      case kRecvActivation:
        return !begins_model(chunk);
      case kForwardPass:
        return (begins_model(chunk) || has(kRecvActivation)) && (!is_load_needed || has(kLoadMicroBatch));
      case kSendActivation:
        return has(kForwardPass) && !ends_model(chunk);
      case kRecvGrad:
        return has(kForwardPass) && !ends_model(chunk);
      case kBackwardPass:
      case kBackwardInput:
        return has(kForwardPass) && (ends_model(chunk) || has(kRecvGrad)) &&
               !has(instruction.kind == kBackwardPass ? kBackwardInput : kBackwardPass);
      case kBackwardWeight:
        return has(kBackwardInput);
      case kSendGrad:
        return (has(kBackwardPass) || has(kBackwardInput)) && !begins_model(chunk);
      default:
        return false;
    }
  }

  bool is_finished(const MicroBatchOfChunk& about) const {
    const Done& done = done_.at(about);
    const auto has = [&](InstructionKind kind) { return done.count(kind) != 0; };
    const bool is_sent = ends_model(about.second) || has(kSendActivation);
    if (!trains_) return has(kForwardPass) && is_sent;
    const bool is_backward_done = has(kBackwardPass) || has(kBackwardWeight);
    return is_sent && is_backward_done && (begins_model(about.second) || has(kSendGrad));
  }

  const char* end_batch(const Instruction& instruction) {
    ending_.push_back(instruction.kind);
    if (!is_all_finished()) return "it comes before all micro batches are done";
    return nullptr;
  }

  bool is_all_finished() const {
    if (int(done_.size()) != pipeline_.micro_batches * pipeline_.model_chunks) return false;
    return std::all_of(done_.begin(), done_.end(), [&](const auto& one) { return is_finished(one.first); });
  }

  std::string missing() const {
    if (!is_all_finished()) return message("stage ", stage_, ": not all micro batches are done");
    const std::vector<InstructionKind> expected = {kReduceTiedGrads, kReduceGrads, kOptimizerStep};
    if (trains_ ? ending_ == expected : ending_.empty()) return "";
    return message("stage ", stage_, ": it does not end with reductions and a step of the optimizer");
  }

  const PipelineSteps& pipeline_;
  int stage_;
  bool trains_;
  std::map<MicroBatchOfChunk, Done> done_;
  std::vector<std::optional<MicroBatchOfChunk>> holders_;
  std::vector<InstructionKind> ending_;
};

/// Describes one end of a transfer: micro batch, the receiving stage's chunk, this end's step.
struct Message {
  int micro_batch;
  int model_chunk;
  int step;
};

struct Traffic {
  std::vector<Message> sent;
  std::vector<Message> received;
};

std::map<Channel, Traffic> traffic_of(const PipelineSteps& pipeline) {
  std::map<Channel, Traffic> channels;
  const int stages = pipeline.num_stages();
  for (int stage = 0; stage < stages; ++stage) {
    const auto& steps = pipeline.stages[stage];
    for (int step = 0; step < int(steps.size()); ++step) {
      for (const auto& one : steps[step]) {
        if (!is_send(one.kind) && !is_receive(one.kind)) continue;
        Traffic& traffic = channels[channel_of(one, stage, stages)];
        const int chunk = is_send(one.kind) ? peer_of(one, stage, stages).model_chunk : one.model_chunk;
        (is_send(one.kind) ? traffic.sent : traffic.received).push_back({one.micro_batch, chunk, step});
      }
    }
  }
  return channels;
}

bool pairs_up(const Traffic& traffic) {
  return std::equal(traffic.sent.begin(), traffic.sent.end(), traffic.received.begin(),
                    traffic.received.end(), [](const Message& sent, const Message& received) {
                      return sent.micro_batch == received.micro_batch &&
                             sent.model_chunk == received.model_chunk && sent.step <= received.step;
                    });
}

std::string fault_of_traffic(const PipelineSteps& pipeline) {
  for (const auto& [channel, traffic] : traffic_of(pipeline)) {
    if (pairs_up(traffic)) continue;
    return message(channel.is_gradient ? "gradients" : "activations", " from stage ", channel.from,
                   " to stage ", channel.to, ": what is sent is not what is received");
  }
  return "";
}

/// Runs the sends and receives of all stages until no stage can continue.
class Exchange {
 public:
  Exchange(const PipelineSteps& pipeline, SendMode mode)
      : mode_(mode), waiting_(pipeline.num_stages()), next_(pipeline.num_stages(), 0) {
    for (int stage = 0; stage < pipeline.num_stages(); ++stage) {
      for (const auto& step : pipeline.stages[stage]) {
        for (const auto& one : step) {
          if (!is_send(one.kind) && !is_receive(one.kind)) continue;
          waiting_[stage].push_back({is_send(one.kind), channel_of(one, stage, pipeline.num_stages())});
        }
      }
    }
  }

  std::string fault() {
    while (advance()) {
    }
    for (size_t stage = 0; stage < waiting_.size(); ++stage) {
      if (!is_done(stage)) return message("stage ", stage, " waits forever");
    }
    return "";
  }

 private:
  struct End {
    bool is_send;
    Channel channel;
  };

  bool is_done(size_t stage) const { return next_[stage] == waiting_[stage].size(); }

  bool advance() {
    bool moved = false;
    for (size_t stage = 0; stage < waiting_.size(); ++stage) {
      while (!is_done(stage) && pass(stage, waiting_[stage][next_[stage]])) moved = true;
    }
    return moved;
  }

  bool pass(size_t stage, const End& end) {
    if (mode_ == SendMode::kRendezvous) return end.is_send && meet(stage, end);
    int& in_flight = in_flight_[end.channel];
    if (!end.is_send && in_flight == 0) return false;
    in_flight += end.is_send ? 1 : -1;
    ++next_[stage];
    return true;
  }

  bool meet(size_t stage, const End& end) {
    const size_t other = end.channel.to;
    if (is_done(other)) return false;
    const End& met = waiting_[other][next_[other]];
    if (met.is_send || met.channel != end.channel) return false;
    ++next_[stage];
    ++next_[other];
    return true;
  }

  SendMode mode_;
  std::vector<std::vector<End>> waiting_;
  std::vector<size_t> next_;
  std::map<Channel, int> in_flight_;
};

std::string fault_of_stages(const PipelineSteps& pipeline) {
  const bool trains = has_backward(pipeline);
  for (int stage = 0; stage < pipeline.num_stages(); ++stage) {
    if (pipeline.stages[stage].size() != pipeline.stages[0].size()) {
      return message("stage ", stage, " has a different number of steps than stage 0");
    }
    const auto fault = StageCheck(pipeline, stage, trains).fault();
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace

std::string fault_of(const PipelineSteps& pipeline, SendMode mode) {
  std::string fault = fault_of_stages(pipeline);
  if (fault.empty()) fault = fault_of_traffic(pipeline);
  if (fault.empty()) fault = Exchange(pipeline, mode).fault();
  return fault;
}

}  // namespace deepspeed::pipe
