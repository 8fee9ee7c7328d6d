#include "tests/places/places.h"

namespace deepspeed::testing {

std::filesystem::path source_folder() { return DEEPSPEED_SOURCE_DIR; }

std::filesystem::path build_folder() { return DEEPSPEED_BINARY_DIR; }

}  // namespace deepspeed::testing
