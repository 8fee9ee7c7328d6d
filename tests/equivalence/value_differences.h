// Where the content of one checkpoint file differs from that of another.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::testing {

/// Paths like "/optimizer_state_dict/group_paddings/0" with what stands there. Tensors differ in dtype, shape
/// or bits; numbers in their value, not in being whole ones or not; lists and tuples in their entries; dicts
/// in their keys, and ordered ones in the order of these. Nothing below a path of `passed_over` is compared.
std::vector<std::string> differences(const checkpoint::Value& ours, const checkpoint::Value& theirs,
                                     const std::vector<std::string>& passed_over,
                                     const std::string& path = "");

}  // namespace deepspeed::testing
