// A file without a name is gone with the process, however that ends.
#pragma once

#include <filesystem>

namespace deepspeed::io {

/// Opens a nameless file in `folder`, past the page cache where the file system can do that. Returns the
/// descriptor, which the caller closes; -1, with errno, where there can be no file, and with `needs_direct`
/// also where the page cache cannot be passed (EINVAL).
int open_scratch_file(const std::filesystem::path& folder, bool needs_direct);

}  // namespace deepspeed::io
