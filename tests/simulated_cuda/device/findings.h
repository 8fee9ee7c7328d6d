// What the simulated device has found wrong in a program.
#pragma once

#include <string>
#include <vector>

namespace deepspeed::simulated {

/// Adds a finding; a second one of the key, until they are taken, is dropped. Any thread may call.
void report(const std::string& key, const std::string& text);
/// Returns what was found since the last call.
std::vector<std::string> take_findings();

}  // namespace deepspeed::simulated
