// The links of a stage to those before and behind it: activations go forward and gradients back, from one
// part of the model to the next.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "deepspeed/comm/init.h"
#include "deepspeed/pipe/exchange/channel.h"
#include "deepspeed/pipe/exchange/form.h"
#include "deepspeed/pipe/topology/parallel_ranks.h"

namespace deepspeed::pipe {

/// Which list it is: of inputs of this form of the model's first layer (a number that all stages have alike),
/// behind this part of the model, of a forward for training or for evaluation.
struct ListKind {
  int64_t input_form = 0;
  int part = 0;
  bool is_training = true;

  auto operator<=>(const ListKind&) const = default;
};

class KnownForms {
 public:
  /// Returns the form of such a list, or null where none was seen.
  const Form* find(const ListKind& kind) const {
    const auto found = forms_.find(kind);
    return found == forms_.end() ? nullptr : &found->second;
  }
  void add(const ListKind& kind, Form form) { forms_[kind] = std::move(form); }
  void clear() { forms_.clear(); }

 private:
  std::map<ListKind, Form> forms_;
};

struct LinkOptions {
  std::string name;     // of the engine, whose groups are named after it
  std::string purpose;  // as World::own_group() has it
  int model_chunks = 1;
  at::Device device = at::kCPU;
  bool dynamic_shape = false;  // forms travel with each list
  // Whether the first tensor of activations, and of their gradients, travels in parts, one a slice.
  bool pipe_partitioned = false;
  bool grad_partitioned = false;
};

/// Part p of the model is chunk p / S of stage p % S. The last stage's links lead to the first one where a
/// stage has several chunks.
class StageLinks {
 public:
  /// Makes the groups of ranks that it needs. Collective over the pipeline's ranks.
  StageLinks(const comm::World& world, const ParallelRanks& ranks, const LinkOptions& options);

  /// Sends the outputs of the part `kind.part` to the next one. Throws UsageError where their form is another
  /// one than that of the list before of this kind, unless dynamic_shape allows it.
  void send_outputs(const ListKind& kind, const Tensors& outputs);
  /// Begins to receive the outputs of the part before, unless their form is not known. Returns whether it
  /// was.
  bool expect_inputs(const ListKind& kind);
  /// Waits for them. They are leaves, which get gradients where the other stage's need them.
  Tensors receive_inputs(const ListKind& kind);
  size_t num_expected_inputs() const { return inputs_ ? inputs_->num_expected() : 0; }

  /// Sends gradients of inputs to the part before: those that `inputs` need, zeros where one is undefined.
  void send_gradients(const Tensors& inputs, const Tensors& gradients);
  /// Begins to receive the gradients of outputs of this form.
  void expect_gradients(const Form& outputs);
  /// Waits for them; undefined for outputs that need none.
  Tensors receive_gradients();
  size_t num_expected_gradients() const { return output_grads_ ? output_grads_->num_expected() : 0; }

  /// Waits until all that was sent has left.
  void finish_sends();
  /// Forgets the forms: the next lists travel with them. All stages call it.
  void forget_forms() { forms_.clear(); }
  /// Ends the groups on all ranks: what waits in them fails with the reason.
  void give_up(const std::string& reason) const;

 private:
  comm::ProcessGroup activations_, gradients_;            // between neighbours
  comm::ProcessGroup wrap_activations_, wrap_gradients_;  // from the last stage to the first
  SlicedMessage slices_;
  LinkOptions options_;
  int previous_stage_ = 0, next_stage_ = 0;
  KnownForms forms_;
  // Null where there is no such neighbour.
  std::unique_ptr<Receiver> inputs_, output_grads_;
  std::unique_ptr<Sender> outputs_, input_grads_;
};

}  // namespace deepspeed::pipe
