// Writes the Python script that DeepSpeed's users expect next to `latest`. It calls the program zero_to_fp32.
#pragma once

#include <filesystem>
#include <string>

namespace deepspeed::checkpoint {

/// Returns the script's text. It needs no Python package; only its functions that return tensors import
/// torch. It looks for the program in DEEPSPEED_CPP_HOME/bin, in PATH, and relative to the folder this
/// library was loaded from.
std::string zero_to_fp32_script();

/// Writes the script into `dir` atomically and makes it executable. Does nothing if it is already there.
/// Throws IoError.
void write_zero_to_fp32_script(const std::filesystem::path& dir);

}  // namespace deepspeed::checkpoint
