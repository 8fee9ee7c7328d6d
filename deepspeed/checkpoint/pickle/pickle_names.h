// These names may stand in a checkpoint's pickle: dtypes, storage classes, and classes kept as Object.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace deepspeed::checkpoint {

/// Returns "float32" for torch.float32; an empty text for a dtype that no file can hold.
std::string_view dtype_name(at::ScalarType type);
std::optional<at::ScalarType> dtype_of_name(std::string_view name);

/// Returns "FloatStorage" for torch.float32; an empty text for the newer dtypes, which torch stores by
/// UntypedStorage and a dtype.
std::string_view storage_class(at::ScalarType type);
std::optional<at::ScalarType> dtype_of_storage_class(std::string_view name);

/// Says whether `module.name` is a class whose instances stand in checkpoints and are read as Object.
bool is_known_class(std::string_view module, std::string_view name);

}  // namespace deepspeed::checkpoint
