// Files that a path names are opened here. What is no regular file is refused: a FIFO would keep its reader
// waiting for ever. What the kernel's own tables say is read here too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Opens a file to be read, and returns its descriptor, which the caller closes. Throws IoError, naming the
/// path and the reason, where it cannot be opened or is no regular file; where no more files can be open it
/// names the limit. `expected`: what the file should be, for messages.
DEEPSPEED_API int open_regular_file(const std::filesystem::path& path, const char* expected = "regular file");

/// Reads a whole file. Throws as open_regular_file(), and IoError where it has more than `max_bytes`.
DEEPSPEED_API std::string read_text_file(const std::filesystem::path& path, size_t max_bytes,
                                         const char* expected = "regular file");

/// Sees to it that this process can open `count` further files: raises its soft limit where the hard one
/// allows. Throws IoError, naming `what` they are for and the limit, where that is not enough.
DEEPSPEED_API void require_open_files(uint64_t count, const std::string& what);

/// Returns what to say of a failed call behind its error's text: for EMFILE and ENFILE the limit and the way
/// out.
DEEPSPEED_API std::string open_files_hint(int error);

/// Describes the program that listens at a TCP port of this machine: "another program", and whose it is where
/// it is another user's.
DEEPSPEED_API std::string taker_of_port(int port);

}  // namespace deepspeed
