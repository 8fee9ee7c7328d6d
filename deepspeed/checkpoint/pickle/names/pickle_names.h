// Lists the names of dtypes and storage classes in the pickle of a checkpoint.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace deepspeed::checkpoint {

/// Returns "float32" for torch.float32; an empty string for a dtype that no file can hold.
std::string_view dtype_name(at::ScalarType type);
std::optional<at::ScalarType> dtype_of_name(std::string_view name);

/// Returns "FloatStorage" for torch.float32; an empty string for newer dtypes. torch stores those as
/// UntypedStorage and a dtype.
std::string_view storage_class(at::ScalarType type);
std::optional<at::ScalarType> dtype_of_storage_class(std::string_view name);

}  // namespace deepspeed::checkpoint
