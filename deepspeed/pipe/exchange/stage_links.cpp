#include "deepspeed/pipe/exchange/stage_links.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "deepspeed/base/error.h"

namespace deepspeed::pipe {
namespace {

// Runs `exchange`, a part of an exchange with a stage, and names the stage in errors.
template <class Exchange>
auto naming(const char* what, int stage, Exchange exchange) {
  try {
    return exchange();
  } catch (const CommError& error) {
    throw CommError(message("[pipe] ", what, " stage ", stage, " failed: ", error.what()));
  }
}

/// Connects `stage` with its neighbours in a group. If `wraps`, connects only the last stage with the first.
/// NCCL connects two ranks at their first message and blocks both threads until then. A receive posted ahead
/// would block a rank whose send the other waits for. So each pair connects here in turn.
void connect(const comm::ProcessGroup& group, int stage, int num_stages, bool wraps, at::Device device) {
  if (!group || group.device_type() == at::kCPU) return;
  const at::Tensor byte = at::zeros({1}, at::TensorOptions(at::kByte).device(device));
  const auto meet = [&](int one, int other) {
    if (stage == one) group.send(byte, other);
    if (stage == other) group.recv(byte, one);
  };
  if (wraps) return meet(num_stages - 1, 0);
  for (const int first : {0, 1}) {
    for (int lower = first; lower + 1 < num_stages; lower += 2) meet(lower, lower + 1);
  }
}

}  // namespace

StageLinks::StageLinks(const comm::World& world, const ParallelRanks& ranks, const LinkOptions& options)
    : options_(options) {
  const std::vector<int> stages = ranks.pipe_group();
  const int num_stages = int(stages.size());
  if (num_stages == 1) return;
  const auto group = [&](const char* what) {
    return world.own_group(options.name + "." + what, options.purpose, stages);
  };
  activations_ = group("activations");
  gradients_ = group("gradients");
  const bool wraps = options.model_chunks > 1;
  if (wraps) {
    wrap_activations_ = group("wrap_activations");
    wrap_gradients_ = group("wrap_gradients");
  }
  const int stage = ranks.stage_id();
  for (const auto* neighbours : {&activations_, &gradients_})
    connect(*neighbours, stage, num_stages, /*wraps=*/false, options.device);
  for (const auto* ends : {&wrap_activations_, &wrap_gradients_})
    connect(*ends, stage, num_stages, /*wraps=*/true, options.device);
  SlicedMessage cut_gradients;
  if (options.pipe_partitioned && ranks.slice_parallel_size() > 1) {
    slices_ = SlicedMessage(world.own_group(options.name + ".slices", options.purpose, ranks.slice_group()));
    if (options.grad_partitioned) cut_gradients = slices_;
  }
  const int previous = (stage + num_stages - 1) % num_stages, next = (stage + 1) % num_stages;
  previous_stage_ = previous;
  next_stage_ = next;
  // The schedules have at most this many in flight, so a send rarely waits.
  const size_t capacity = size_t(num_stages * options.model_chunks) + 2;
  if (stage > 0 || wraps) {
    inputs_ = std::make_unique<Receiver>(stage > 0 ? activations_ : wrap_activations_, previous,
                                         options.device, slices_);
    input_grads_ =
        std::make_unique<Sender>(stage > 0 ? gradients_ : wrap_gradients_, previous, capacity, cut_gradients);
  }
  if (stage + 1 < num_stages || wraps) {
    const bool is_last = stage + 1 == num_stages;
    outputs_ = std::make_unique<Sender>(is_last ? wrap_activations_ : activations_, next, capacity, slices_);
    output_grads_ = std::make_unique<Receiver>(is_last ? wrap_gradients_ : gradients_, next, options.device,
                                               cut_gradients);
  }
}

void StageLinks::send_outputs(const ListKind& kind, const Tensors& outputs) {
  const Form form = form_of(outputs);
  const Form* const known = forms_.find(kind);
  if (known != nullptr && *known != form && !options_.dynamic_shape) {
    raise<UsageError>("the outputs of part ", kind.part, " of the model are ", describe(form), ", and were ",
                      describe(*known),
                      " for inputs of the same shapes before; set dynamic_shape of the PipelineModule to "
                      "true, or call reset_activation_shape() on all ranks");
  }
  naming("sending activations to", next_stage_,
         [&] { outputs_->send(outputs, known == nullptr || options_.dynamic_shape); });
  if (known == nullptr) forms_.add(kind, form);
}

bool StageLinks::expect_inputs(const ListKind& kind) {
  const Form* const known = forms_.find(kind);
  if (known == nullptr || options_.dynamic_shape) return false;
  naming("receiving activations from", previous_stage_, [&] { inputs_->expect(*known); });
  return true;
}

Tensors StageLinks::receive_inputs(const ListKind& kind) {
  return naming("receiving activations from", previous_stage_, [&] {
    if (inputs_->num_expected() == 0 && !expect_inputs(kind)) {
      forms_.add(kind, inputs_->receive_form());
      inputs_->expect(*forms_.find(kind));
    }
    return as_leaves(inputs_->receive(), *forms_.find(kind));
  });
}

void StageLinks::send_gradients(const Tensors& inputs, const Tensors& gradients) {
  Tensors sent(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    sent[i] = gradients[i].defined() ? gradients[i] : at::zeros_like(inputs[i]);
  }
  naming("sending gradients to", previous_stage_, [&] { input_grads_->send(sent, /*with_form=*/false); });
}

void StageLinks::expect_gradients(const Form& outputs) {
  naming("receiving gradients from", next_stage_, [&] { output_grads_->expect(form_of_gradients(outputs)); });
}

Tensors StageLinks::receive_gradients() {
  return naming("receiving gradients from", next_stage_, [&] { return output_grads_->receive(); });
}

void StageLinks::finish_sends() {
  if (outputs_) naming("sending activations to", next_stage_, [&] { outputs_->wait(); });
  if (input_grads_) naming("sending gradients to", previous_stage_, [&] { input_grads_->wait(); });
}

std::vector<comm::ProcessGroup> StageLinks::groups() const {
  std::vector<comm::ProcessGroup> groups = {activations_, gradients_, wrap_activations_, wrap_gradients_,
                                            slices_.group()};
  std::erase_if(groups, [](const comm::ProcessGroup& group) { return !group; });
  return groups;
}

}  // namespace deepspeed::pipe
