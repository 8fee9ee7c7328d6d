#include "deepspeed/checkpoint/content/run_state.h"

namespace deepspeed::checkpoint {

Value build_run_state(const RunState& state) {
  Dict dict{{"torch_rng_state", state.cpu_rng}, {"micro_steps", state.micro_steps}};
  if (state.cuda_rng.defined()) dict.set("cuda_rng_state", state.cuda_rng);
  if (!state.rng_streams.empty()) {
    Dict streams;
    for (const auto& [name, stream] : state.rng_streams) streams.set(name, stream);
    dict.set("rng_tracker_states", streams);
  }
  if (state.loader) {
    const LoaderState& loader = *state.loader;
    dict.set("data_loader", Dict{{"seed", static_cast<int64_t>(loader.seed)},
                                 {"epoch", loader.epoch},
                                 {"samples_consumed", loader.samples_consumed},
                                 {"epoch_ended", loader.epoch_ended}});
  }
  if (state.optimizer_ranks > 0) {
    Dict tensors;
    for (const auto& [name, tensor] : state.optimizer_tensors) tensors.set(name, tensor);
    dict.set("optimizer", Dict{{"ranks", state.optimizer_ranks}, {"tensors", tensors}});
  }
  return dict;
}

RunState parse_run_state(const Value& value) {
  const Dict& dict = value.as_dict();
  RunState state;
  state.cpu_rng = dict.at("torch_rng_state").as_tensor();
  if (const Value* micro_steps = dict.find("micro_steps")) state.micro_steps = micro_steps->as_int();
  if (const Value* cuda = dict.find("cuda_rng_state")) state.cuda_rng = cuda->as_tensor();
  if (const Value* streams = dict.find("rng_tracker_states")) {
    for (const auto& [name, stream] : streams->as_dict().items())
      state.rng_streams.emplace(name.as_string(), stream.as_tensor());
  }
  if (const Value* given = dict.find("data_loader")) {
    const Dict& loader = given->as_dict();
    state.loader = LoaderState{static_cast<uint64_t>(loader.at("seed").as_int()), loader.at("epoch").as_int(),
                               loader.at("samples_consumed").as_int(), loader.at("epoch_ended").as_bool()};
  }
  if (const Value* optimizer = dict.find("optimizer")) {
    state.optimizer_ranks = optimizer->as_dict().at("ranks").as_int();
    for (const auto& [name, tensor] : optimizer->as_dict().at("tensors").as_dict().items())
      state.optimizer_tensors.emplace_back(name.as_string(), tensor.as_tensor());
  }
  return state;
}

}  // namespace deepspeed::checkpoint
