// The factory makes the optimizer that the config section `optimizer` names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// Makes the optimizer of the section's `type` and `params`: DeepSpeed's own types in any case ("adam",
/// "AdamW"), torch's as torch spells them ("SGD"). `params` are the defaults of the groups: an option that a
/// group holds already stays. on_host: its steps run on the host, wherever the model is; as in DeepSpeed,
/// Adam and Lion are then DeepSpeedCPUAdam and DeepSpeedCPULion. Throws ConfigError naming `optimizer.type`
/// or `optimizer.params.<key>`.
std::unique_ptr<Optimizer> make_optimizer(const std::string& type, const Json& params,
                                          std::vector<ParamGroup> groups, bool on_host = false);

/// Says whether the type is Adam or AdamW, in any case, with the moments that `moment_dtype` of its params
/// names.
bool is_adam(const std::string& type);
/// Says whether the type is Muon, in any case, whose groups hold matrices or others alone.
bool is_muon(const std::string& type);

}  // namespace deepspeed::optim
