// Opens files without a name, which disappear with the process however it ends.
#pragma once

#include <filesystem>

namespace deepspeed::io {

/// Opens a nameless file in `folder`, past the page cache if the file system can. Returns the descriptor,
/// which the caller closes, or -1 with errno. With `needs_direct` it also fails if the page cache cannot be
/// bypassed (EINVAL).
int open_scratch_file(const std::filesystem::path& folder, bool needs_direct);

}  // namespace deepspeed::io
