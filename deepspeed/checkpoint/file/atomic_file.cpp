#include "deepspeed/checkpoint/file/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/checkpoint/file/crc32.h"

namespace deepspeed::checkpoint {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

/// Opens the folder of a file that is about to be created.
Folder folder_for(const std::filesystem::path& path) {
  const std::filesystem::path folder = folder_of(path);
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown))
    raise<IoError>("cannot create ", path, ": there is no folder ", folder);
  return Folder(folder);
}

}  // namespace

void sync_folder(const std::filesystem::path& folder) { Folder(folder).sync(); }

void make_folders(const std::filesystem::path& folder) {
  std::error_code unknown;
  if (folder.empty() || std::filesystem::is_directory(folder, unknown)) return;
  make_folders(folder.parent_path());
  const int error = ::mkdir(folder.c_str(), 0777) == 0 ? 0 : errno;
  if (error != 0 && !std::filesystem::is_directory(folder, unknown))
    raise<IoError>("the folder ", folder, " cannot be made: ", std::strerror(error));
  sync_folder(folder_of(folder));
}

AtomicFile::AtomicFile(const std::filesystem::path& path, const io::WriterOptions& options)
    : AtomicFile(folder_for(path), path.filename().string(), options) {}

AtomicFile::AtomicFile(Folder folder, const std::string& name, const io::WriterOptions& options)
    : folder_(std::move(folder)), name_(name) {
  const std::string temporary = name_ + "." + std::to_string(::getpid()) + ".tmp";
  writer_ = io::open_writer(folder_.path() / temporary, options, folder_.handle());
  temporary_ = temporary;
}

AtomicFile::~AtomicFile() {
  writer_.reset();
  if (!temporary_.empty()) ::unlinkat(folder_.handle(), temporary_.c_str(), 0);
}

void AtomicFile::fail(const char* action, int error) const {
  std::string room;
  if (needed_bytes_ > 0 && (error == ENOSPC || error == EDQUOT)) {
    std::error_code unknown;
    const auto space = std::filesystem::space(folder_.path(), unknown);
    room = message("; it needs ", needed_bytes_, " bytes, ",
                   unknown ? std::string("too few") : message(space.available), " are free");
  }
  raise<IoError>("cannot ", action, " ", folder_.path() / name_, ": ", std::strerror(error), room);
}

void AtomicFile::reserve(uint64_t bytes) {
  needed_bytes_ = bytes;
  if (const int error = writer_->reserve(bytes)) fail("write", error);
}

uint32_t AtomicFile::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  written_bytes_ += size;
  needed_bytes_ = std::max(needed_bytes_, written_bytes_);
  uint32_t crc = 0;
  // The pieces are small enough to stay in the cache between the checksum and the copy.
  for (size_t done = 0; done < size;) {
    const size_t count = std::min<size_t>(size - done, kSumChunkBytes);
    crc = combine_crc32(crc, summer_.add(bytes + done, count), count);
    if (const int error = writer_->write(bytes + done, count)) fail("write", error);
    done += count;
  }
  return crc;
}

FileSums AtomicFile::commit() {
  if (const int error = writer_->finish()) fail("write", error);
  if (::renameat(folder_.handle(), temporary_.c_str(), folder_.handle(), name_.c_str()) != 0)
    fail("rename the temporary file to", errno);
  temporary_.clear();
  folder_.sync();
  return summer_.finish();
}

void write_text_atomically(const std::filesystem::path& path, const std::string& text) {
  write_text_atomically(folder_for(path), path.filename().string(), text);
}

void write_text_atomically(const Folder& folder, const std::string& name, const std::string& text) {
  AtomicFile file(folder, name, {.method = io::WriteMethod::kPlain});
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace deepspeed::checkpoint
