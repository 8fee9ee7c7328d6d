#include "deepspeed/io/scratch_file.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "deepspeed/base/system/files.h"

namespace deepspeed::io {
namespace {

int open_unnamed(const std::filesystem::path& folder, int direct) {
  std::string name = (folder / "deepspeed.XXXXXX").string();
  const int file = ::mkostemp(name.data(), direct | O_CLOEXEC);
  // The file exists as long as its descriptor. errno is kept for the caller.
  if (file >= 0) ::unlink(name.c_str());
  return file;
}

}  // namespace

int open_scratch_file(const std::filesystem::path& folder, bool needs_direct) {
  const int file = open_unnamed(folder, O_DIRECT);
  if (file >= 0 || errno != EINVAL || needs_direct) return file;
  return open_unnamed(folder, 0);
}

ScratchFile::ScratchFile(std::filesystem::path folder, const FirstPart& key)
    : folder_(std::move(folder)), key_(key) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  file_ = open_scratch_file(folder_, /*needs_direct=*/false);
  if (file_ < 0) raise<IoError>(key_, ": cannot make a file in ", folder_, ": ", std::strerror(errno));
}

ScratchFile::~ScratchFile() { ::close(file_); }

uint64_t ScratchFile::grow(size_t bytes, const char* content) {
  const auto begin = static_cast<uint64_t>(bytes_);
  if (bytes > 0 && ::fallocate(file_, 0, off_t(begin), off_t(bytes)) != 0 && errno != EOPNOTSUPP) {
    const int error = errno;
    raise<IoError>(key_, ": ", folder_, " has no room for ", bytes, " more bytes of ", content, " (",
                   free_bytes(folder_).value_or(0), " are free): ", std::strerror(error));
  }
  bytes_ += static_cast<int64_t>(bytes);
  return begin;
}

}  // namespace deepspeed::io
