// Links a stage with its previous and next stage. Activations go forward and gradients back, from one part of
// the model to the next.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "deepspeed/comm/init.h"
#include "deepspeed/pipe/exchange/channel.h"
#include "deepspeed/pipe/exchange/form.h"
#include "deepspeed/pipe/topology/parallel_ranks.h"

namespace deepspeed::pipe {

/// Identifies lists of tensors that have one form. The kind depends on the form of the model's inputs (a
/// number equal on all stages), the part of the model whose outputs are sent, and training or evaluation.
struct ListKind {
  int64_t input_form = 0;
  int part = 0;
  bool is_training = true;

  auto operator<=>(const ListKind&) const = default;
};

class KnownForms {
 public:
  /// Returns the form of lists of this kind; null if none was added.
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
  std::string name;     // the engine's, used in the names of the groups
  std::string purpose;  // as in World::own_group()
  int model_chunks = 1;
  at::Device device = at::kCPU;
  bool dynamic_shape = false;  // forms travel with each list
  // Whether the first tensor of activations, and of their gradients, travels in parts, one per slice.
  bool pipe_partitioned = false;
  bool grad_partitioned = false;
};

/// Links the parts of the model. With S stages, part p is chunk p / S of stage p % S. If stages have several
/// chunks, the last stage is linked to the first.
class StageLinks {
 public:
  /// Makes the process groups for the messages. Collective over the pipeline's ranks.
  StageLinks(const comm::World& world, const ParallelRanks& ranks, const LinkOptions& options);

  /// Sends the outputs of part `kind.part` to the next part. Throws UsageError if their form differs from
  /// that of the last list of this kind, unless dynamic_shape allows it.
  void send_outputs(const ListKind& kind, const Tensors& outputs);
  /// Starts receiving the previous part's outputs. Returns false if it cannot: their form is unknown or may
  /// change (dynamic_shape).
  bool expect_inputs(const ListKind& kind);
  /// Waits for the previous part's outputs and returns them. They are leaves, and require gradients if the
  /// outputs of the previous part do.
  Tensors receive_inputs(const ListKind& kind);
  size_t num_expected_inputs() const { return inputs_ ? inputs_->num_expected() : 0; }

  /// Sends the gradients of `inputs` to the previous part. Inputs that require none are left out; undefined
  /// gradients become zeros.
  void send_gradients(const Tensors& inputs, const Tensors& gradients);
  /// Starts receiving the gradients of outputs with this form from the next part.
  void expect_gradients(const Form& outputs);
  /// Waits for the oldest gradients of expect_gradients(). They are undefined for outputs that require none.
  Tensors receive_gradients();
  size_t num_expected_gradients() const { return output_grads_ ? output_grads_->num_expected() : 0; }

  /// Waits until everything was sent.
  void finish_sends();
  /// Forgets the forms, so the next lists travel with them. All stages must call it.
  void forget_forms() { forms_.clear(); }
  /// Returns the groups that messages go over.
  std::vector<comm::ProcessGroup> groups() const;

 private:
  comm::ProcessGroup activations_, gradients_;            // between neighbours
  comm::ProcessGroup wrap_activations_, wrap_gradients_;  // from the last stage to the first
  SlicedMessage slices_;
  LinkOptions options_;
  int previous_stage_ = 0, next_stage_ = 0;
  KnownForms forms_;
  // Null if there is no such neighbour.
  std::unique_ptr<Receiver> inputs_, output_grads_;
  std::unique_ptr<Sender> outputs_, input_grads_;
};

}  // namespace deepspeed::pipe
