#include "deepspeed/io/file_writer.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/io/direct_writer.h"
#include "deepspeed/io/plain_writer.h"

namespace deepspeed::io {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, int error) {
  raise<IoError>("cannot create ", path, ": ", std::strerror(error), open_files_hint(error));
}

/// Opens a new file, removing any existing entry of that name.
int open_new(int folder, const std::filesystem::path& name, int flags) {
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int file = ::openat(folder, name.c_str(), kNew | flags, 0666);
  if (file >= 0 || errno != EEXIST || ::unlinkat(folder, name.c_str(), 0) != 0) return file;
  return ::openat(folder, name.c_str(), kNew | flags, 0666);
}

}  // namespace

std::unique_ptr<FileWriter> open_writer(const std::filesystem::path& path, const WriterOptions& options,
                                        int folder) {
  const std::filesystem::path name = folder == AT_FDCWD ? path : path.filename();
  if (options.method == WriteMethod::kDirect) {
    const int file = open_new(folder, name, O_DIRECT);
    if (file >= 0) return std::make_unique<DirectWriter>(file, options);
    // EINVAL: a file system without O_DIRECT, which may have created the file anyway.
    if (errno != EINVAL) refuse(path, errno);
  }
  const int file = open_new(folder, name, 0);
  if (file < 0) refuse(path, errno);
  return std::make_unique<PlainWriter>(file);
}

}  // namespace deepspeed::io
