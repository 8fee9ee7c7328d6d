#include "deepspeed/io/disk_rate.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/io/queue/aligned_buffer.h"
#include "deepspeed/io/scratch_file.h"

namespace deepspeed::io {
namespace {

/// Creates a file for the measurement, and removes it at the end.
class MeasuredFile {
 public:
  explicit MeasuredFile(const std::filesystem::path& folder) : folder_(folder) {
    file_ = open_scratch_file(folder, /*needs_direct=*/true);
    if (file_ < 0) fail("cannot make a file with O_DIRECT in ", errno);
  }
  ~MeasuredFile() { ::close(file_); }
  MeasuredFile(const MeasuredFile&) = delete;
  MeasuredFile& operator=(const MeasuredFile&) = delete;

  [[noreturn]] void fail(const char* what, int error) const {
    raise<IoError>(what, folder_, ": ", std::strerror(error));
  }

  void reserve(uint64_t bytes) const {
    const int error = ::posix_fallocate(file_, 0, off_t(bytes));
    if (error != 0) fail("there is no room for the file in ", error);
  }

  double seconds(AsyncIo& io, Transfer::Kind kind, const AlignedBuffer& buffer) const {
    const auto begin = std::chrono::steady_clock::now();
    const Completion done = io.wait(io.start({kind, file_, buffer.data(), buffer.size(), 0}));
    if (done.error == 0 && kind == Transfer::Kind::kWrite && ::fdatasync(file_) != 0)
      fail("cannot sync a file in ", errno);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (done.error != 0) fail("cannot read and write a file in ", done.error);
    if (done.bytes != buffer.size()) fail("a file became shorter in ", ENOSPC);
    return taken.count();
  }

 private:
  std::filesystem::path folder_;
  int file_;
};

/// Fills the buffer with bytes that a disk cannot compress or deduplicate.
void fill(const AlignedBuffer& buffer) {
  uint64_t state = 88172645463325252u;
  for (size_t begin = 0; begin + sizeof state <= buffer.size(); begin += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(buffer.data() + begin, &state, sizeof state);
  }
}

}  // namespace

DiskRate measure_disk(const std::filesystem::path& folder, const DiskRateOptions& options,
                      const AsyncIoOptions& tuning) {
  if (options.bytes == 0 || options.loops < 1) {
    raise<UsageError>(options.loops, " loops over ", options.bytes, " bytes, expected at least one of each");
  }
  const MeasuredFile file(folder);
  const AlignedBuffer written(align_up(options.bytes)), read(written.size());
  fill(written);
  file.reserve(written.size());
  AsyncIo io(tuning, {{written.data(), written.size()}, {read.data(), read.size()}});
  DiskRate rate;
  const auto bytes = double(written.size());
  for (int loop = 0; loop < options.loops; ++loop) {
    rate.write = std::max(rate.write, bytes / file.seconds(io, Transfer::Kind::kWrite, written));
    rate.read = std::max(rate.read, bytes / file.seconds(io, Transfer::Kind::kRead, read));
    if (options.validate && std::memcmp(read.data(), written.data(), read.size()) != 0)
      file.fail("other bytes came back than were written in ", EIO);
  }
  return rate;
}

}  // namespace deepspeed::io
