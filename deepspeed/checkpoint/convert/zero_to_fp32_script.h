// DeepSpeed's users know the Python script beside `latest`: it calls the program zero_to_fp32.
#pragma once

#include <filesystem>
#include <string>

namespace deepspeed::checkpoint {

/// Returns the script's text. It needs no Python package; only its functions that return tensors import
/// torch. It looks for the program in DEEPSPEED_CPP_HOME/bin, in PATH, and beside the folder from which this
/// library was loaded.
std::string zero_to_fp32_script();

/// Puts the script into `dir`, executable, in one step; does nothing where it is there already. Throws
/// IoError.
void write_zero_to_fp32_script(const std::filesystem::path& dir);

}  // namespace deepspeed::checkpoint
