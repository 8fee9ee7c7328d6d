#include "deepspeed/io/scratch_file.h"

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <unistd.h>

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

}  // namespace deepspeed::io
