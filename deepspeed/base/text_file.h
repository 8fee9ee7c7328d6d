// Opens the files that a path names. Anything but a regular file is refused: a FIFO would make its reader
// wait forever. The kernel's own tables are read here too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Opens a file for reading. Returns its descriptor, which the caller closes. Throws IoError, naming the path
/// and the reason, if it cannot be opened or is not a regular file. If too many files are open the error
/// names the limit. `expected`: what the file should be, for messages.
DEEPSPEED_API int open_regular_file(const std::filesystem::path& path, const char* expected = "regular file");

/// Reads a whole file. Throws like open_regular_file(), and IoError if it has more than `max_bytes`.
DEEPSPEED_API std::string read_text_file(const std::filesystem::path& path, size_t max_bytes,
                                         const char* expected = "regular file");

/// Ensures that this process can open `count` more files. It raises the soft limit if the hard one allows.
/// Throws IoError, naming `what` they are for and the limit, if that is not enough.
DEEPSPEED_API void require_open_files(uint64_t count, const std::string& what);

/// Returns what to append to a failed call's error text. `error` is its errno. For EMFILE and ENFILE that is
/// the limit and the way out, otherwise "".
DEEPSPEED_API std::string open_files_hint(int error);

/// Describes the program that listens at a TCP port of this machine. The text is "another program", or gives
/// the id of the other user that runs it.
DEEPSPEED_API std::string taker_of_port(int port);

}  // namespace deepspeed
