// A file without a name: it is gone with the process, however that ends.
#pragma once

#include <filesystem>

namespace deepspeed::io {

/// Opens one in `folder`, to be read and written past the page cache, where the file system can do that.
/// Returns the descriptor, which the caller closes; -1, with errno, where there can be none, and with
/// `needs_direct` also where it is the page cache that could not be passed (EINVAL).
int open_scratch_file(const std::filesystem::path& folder, bool needs_direct);

}  // namespace deepspeed::io
