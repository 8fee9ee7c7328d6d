#include "deepspeed/checkpoint/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kAtomicFileWhere = "checkpoint.atomic_file";

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

void sync_folder(const std::filesystem::path& folder) {
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0)
    raise<IoError>(kAtomicFileWhere, "cannot open the folder ", folder, ": ", std::strerror(errno));
  const bool synced = ::fsync(handle) == 0 || errno == EINVAL;  // EINVAL: a file system without such a call
  const int error = errno;
  ::close(handle);
  if (!synced)
    raise<IoError>(kAtomicFileWhere, "cannot fsync the folder ", folder, ": ", std::strerror(error));
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code unknown;
  if (folder.empty() || std::filesystem::is_directory(folder, unknown)) return;
  make_folders(folder.parent_path());
  const int error = ::mkdir(folder.c_str(), 0777) == 0 ? 0 : errno;
  if (error != 0 && !std::filesystem::is_directory(folder, unknown))
    raise<IoError>(kAtomicFileWhere, "the folder ", folder, " cannot be made: ", std::strerror(error));
  sync_folder(folder_of(folder));
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  temporary_ = path_;
  temporary_ += "." + std::to_string(::getpid()) + ".tmp";
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail("create");
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* action) const {
  const int error = errno;
  std::string room;
  if (needed_bytes_ > 0 && (error == ENOSPC || error == EDQUOT)) {
    std::error_code unknown;
    const auto space = std::filesystem::space(folder_of(path_), unknown);
    room = message("; it needs ", needed_bytes_, " bytes, ",
                   unknown ? std::string("too few") : message(space.available), " are free");
  }
  raise<IoError>(kAtomicFileWhere, "cannot ", action, " ", path_, ": ", std::strerror(error), room);
}

void AtomicFile::reserve(uint64_t bytes) {
  needed_bytes_ = bytes;
  if (bytes == 0 || ::fallocate(file_, FALLOC_FL_KEEP_SIZE, 0, off_t(bytes)) == 0) return;
  if (errno == ENOSPC || errno == EDQUOT) fail("write");  // else a file system without such a call
}

void AtomicFile::write(const void* data, size_t size) {
  summer_.add(data, size);
  written_bytes_ += size;
  needed_bytes_ = std::max(needed_bytes_, written_bytes_);
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::write(file_, bytes, std::min<size_t>(size, 1u << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write");
    bytes += count;
    size -= size_t(count);
  }
}

FileSums AtomicFile::commit() {
  if (::fsync(file_) != 0) fail("fsync");
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0) fail("close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename the temporary file to");
  temporary_.clear();
  sync_folder(folder_of(path_));
  return summer_.finish();
}

void write_text_atomically(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace deepspeed::checkpoint
