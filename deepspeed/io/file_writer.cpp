#include "deepspeed/io/file_writer.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/io/direct_writer.h"
#include "deepspeed/io/plain_writer.h"

namespace deepspeed::io {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, int error) {
  raise<IoError>("cannot create ", path, ": ", std::strerror(error), open_files_hint(error));
}

}  // namespace

std::unique_ptr<FileWriter> open_writer(const std::filesystem::path& path, const WriterOptions& options) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  if (options.method == WriteMethod::kDirect) {
    const int file = ::open(path.c_str(), kFlags | O_DIRECT, 0666);
    if (file >= 0) return std::make_unique<DirectWriter>(file, options);
    // EINVAL: a file system without O_DIRECT.
    if (errno != EINVAL) refuse(path, errno);
  }
  const int file = ::open(path.c_str(), kFlags, 0666);
  if (file < 0) refuse(path, errno);
  return std::make_unique<PlainWriter>(file);
}

}  // namespace deepspeed::io
