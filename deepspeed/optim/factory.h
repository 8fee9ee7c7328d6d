// Makes the optimizer that the config section `optimizer` names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// Makes the optimizer from `type` and `params` of the config's optimizer section. DeepSpeed's own types
/// match in any case ("adam", "AdamW"), torch's as torch spells them ("SGD"). `params` are defaults: options
/// that a group already has stay. on_host: steps run on the host, wherever the model is. As in DeepSpeed,
/// Adam and Lion are then DeepSpeedCPUAdam and DeepSpeedCPULion. Throws ConfigError naming `optimizer.type`
/// or `optimizer.params.<key>`.
std::unique_ptr<Optimizer> make_optimizer(const std::string& type, const Json& params,
                                          std::vector<ParamGroup> groups, bool on_host = false);

/// Returns whether the type is Adam or AdamW, in any case. Only their params may have `moment_dtype`.
bool is_adam(const std::string& type);
/// Returns whether the type is Muon, in any case. The engine divides its groups into matrices and other
/// parameters, unless they set use_muon.
bool is_muon(const std::string& type);

}  // namespace deepspeed::optim
