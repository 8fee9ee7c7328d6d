// Opening takes the lock first, then reads, so no other process writes meanwhile. Bytes after the last line
// feed belong to a line whose append() never returned, and are cut off. No other line can be unfinished. But
// if these bytes are a whole line and one byte more, that byte was a line feed, and the file is damaged.
//
// A failed write is taken back by cutting the file to its former size. After a failed fsync the system may
// have dropped data, and a second fsync would not report it (https://lwn.net/Articles/752063). So the journal
// then refuses to go on, and must be opened again.
#include "deepspeed/trial/search/journal.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/text_file.h"

namespace deepspeed::trial {
namespace {

constexpr const char* kFormatName = "deepspeed trial journal";
constexpr int kFormatVersion = 1;
constexpr int kOpenFlags = O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
constexpr std::string_view kLineBegin = R"({"sum":")";
constexpr std::string_view kEntryBegin = R"(","entry":)";
constexpr std::string_view kLineEnd = "}";
constexpr size_t kSumDigits = 16;

uint64_t sum_of(uint64_t before, std::string_view entry) {
  Hash hash;
  hash.add(before);
  hash.add(entry);
  return hash.value();
}

std::string digits_of(uint64_t sum) {
  char digits[kSumDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(sum));
  return digits;
}

std::string line_of(uint64_t sum, std::string_view entry) {
  std::string line(kLineBegin);
  line.append(digits_of(sum)).append(kEntryBegin).append(entry).append(kLineEnd);
  return line;
}

/// Returns the text of a line's entry. Returns nothing if the line is not whole, or its sum is wrong.
std::optional<std::string_view> entry_text_of(std::string_view line, uint64_t before) {
  const size_t frame = kLineBegin.size() + kSumDigits + kEntryBegin.size();
  if (line.size() < frame + kLineEnd.size()) return {};
  const std::string_view entry = line.substr(frame, line.size() - frame - kLineEnd.size());
  if (line != line_of(sum_of(before, entry), entry)) return {};
  return entry;
}

/// Returns the owner of new files in the folder of `file`. Some file systems choose it.
uid_t owner_of_new_file(const std::filesystem::path& file) {
  const std::string probe = (file.string() + ".owner_probe.") + std::to_string(::getpid());
  const Descriptor made(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!made) return ::geteuid();
  struct stat status {};
  const bool is_known = ::fstat(made.get(), &status) == 0;
  ::unlink(probe.c_str());
  return is_known ? status.st_uid : ::geteuid();
}

/// Opens the file, or makes it.
Descriptor open_own_file(const std::filesystem::path& file) {
  Descriptor made(::open(file.c_str(), kOpenFlags | O_CREAT | O_EXCL, 0666));
  if (made) return made;
  const int refusal = errno;
  Descriptor found(refusal == EEXIST ? ::open(file.c_str(), kOpenFlags) : -1);
  if (!found) {
    const int error = refusal == EEXIST ? errno : refusal;
    if (error == ELOOP)
      raise<IoError>("the journal ", file,
                     " is a symbolic link, which is not followed, expected a file or nothing");
    raise<IoError>("cannot open the journal ", file, ": ", std::strerror(error), open_files_hint(error));
  }
  struct stat status {};
  if (::fstat(found.get(), &status) != 0 || !S_ISREG(status.st_mode))
    raise<IoError>("the journal ", file, " is no regular file, expected one, or nothing");
  if (status.st_uid != ::geteuid() && status.st_uid != owner_of_new_file(file)) {
    raise<IoError>("the journal ", file, " belongs to another user (uid ", status.st_uid,
                   "), expected this one: have it removed, or use another folder");
  }
  return found;
}

void lock_file(const Descriptor& descriptor, const std::filesystem::path& file) {
  // On a file system without locks, nothing is held.
  if (::flock(descriptor.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  raise<IoError>("the journal ", file,
                 " is in use by another process, expected one at a time: wait until that ",
                 "search ends, or use another folder");
}

std::string read_all(const Descriptor& descriptor, const std::filesystem::path& file) {
  constexpr size_t kPiece = size_t{64} << 10;
  std::string bytes;
  for (;;) {
    const size_t before = bytes.size();
    bytes.resize(before + kPiece);
    const ssize_t count =
        ::pread(descriptor.get(), bytes.data() + before, kPiece, static_cast<off_t>(before));
    bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) return bytes;
    if (count < 0 && errno != EINTR)
      raise<IoError>("cannot read the journal ", file, ": ", std::strerror(errno));
  }
}

bool cut_to(const Descriptor& descriptor, uint64_t size) {
  return ::ftruncate(descriptor.get(), static_cast<off_t>(size)) == 0;
}

/// Makes a new file's name durable. A file system that cannot is left alone.
void sync_folder_of(const std::filesystem::path& file) {
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (open) ::fsync(open.get());
}

}  // namespace

Journal::Journal(std::filesystem::path file, const std::string& experiment_digest, uint64_t seed)
    : file_(std::move(file)), descriptor_(open_own_file(file_)) {
  lock_file(descriptor_, file_);
  const Json header = {{"format", kFormatName},
                       {"version", kFormatVersion},
                       {"experiment", experiment_digest},
                       {"seed", seed}};
  read(read_all(descriptor_, file_), header);
  if (size_ > 0) return;
  append(header);
  sync_folder_of(file_);
}

void Journal::read(const std::string& bytes, const Json& header) {
  size_t number = 1;
  for (size_t end = bytes.find('\n'); end != std::string::npos; end = bytes.find('\n', size_), ++number) {
    const Json entry = entry_of(std::string_view(bytes).substr(size_, end - size_), number);
    size_ = end + 1;
    if (number == 1)
      require_header(entry, header);
    else
      entries_.push_back(entry);
  }
  if (size_ == bytes.size()) return;
  const std::string_view rest = std::string_view(bytes).substr(size_);
  // Without this check a file that is no journal would be emptied.
  const size_t begin = std::min(rest.size(), kLineBegin.size());
  if (number == 1 && rest.substr(0, begin) != kLineBegin.substr(0, begin)) fail_format();
  if (entry_text_of(rest.substr(0, rest.size() - 1), sum_))
    fail_line(number, "does not end with a line feed");
  if (!cut_to(descriptor_, size_)) fail_write("cut the unfinished last line off", errno);
}

Json Journal::entry_of(std::string_view line, size_t number) {
  const auto text = entry_text_of(line, sum_);
  Json entry = text ? Json::parse(*text, nullptr, false) : Json(Json::value_t::discarded);
  if (entry.is_discarded() && number == 1 && !line.starts_with(kLineBegin)) fail_format();
  if (entry.is_discarded()) fail_line(number, "has a wrong checksum");
  sum_ = sum_of(sum_, *text);
  return entry;
}

void Journal::require_header(const Json& found, const Json& expected) const {
  if (found == expected) return;
  const auto differs = [&](const char* key) {
    return !found.is_object() || !found.contains(key) || found[key] != expected[key];
  };
  const auto shown = [&](const char* key) {
    return json_excerpt(found.is_object() ? found.value(key, Json()) : found);
  };
  if (differs("format")) fail_format();
  if (differs("version")) {
    raise<UsageError>(file_, " line 1: got the version ", shown("version"), " of the format, expected ",
                      kFormatVersion, ": continue with the program that began it, or use another folder");
  }
  if (differs("experiment")) {
    raise<UsageError>(
        file_, " line 1: the journal belongs to another experiment, ", shown("experiment"), ", expected ",
        expected["experiment"],
        ": hyperparameters, searcher, data or records_per_epoch were others; use another folder, ",
        "or the experiment as it was");
  }
  raise<UsageError>(file_, " line 1: the journal was begun with the seed ", shown("seed"), ", got ",
                    expected["seed"], ": use another folder, or that seed");
}

void Journal::append(const Json& entry) {
  if (is_lost_) raise<IoError>("the journal ", file_, " could not be written before: open it again");
  const std::string text = entry.dump(-1, ' ', true, Json::error_handler_t::replace);
  const uint64_t sum = sum_of(sum_, text);
  const std::string line = line_of(sum, text) + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t count = ::write(descriptor_.get(), line.data() + done, line.size() - done);
    if (count < 0 && errno != EINTR) fail_write("write", errno);
    done += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  if (::fsync(descriptor_.get()) != 0) {
    is_lost_ = true;
    fail_write("fsync", errno);
  }
  sum_ = sum;
  size_ += line.size();
}

void Journal::fail_format() const {
  raise<UsageError>(
      file_, " line 1: got no beginning of a journal, expected a journal or no file: use another ", "folder");
}

void Journal::fail_line(size_t number, const char* what) const {
  raise<IoError>(file_, " line ", number, " ", what,
                 ": the journal is damaged; restore it from a copy, or begin ", "again in another folder");
}

void Journal::fail_write(const char* action, int error) {
  if (!cut_to(descriptor_, size_)) is_lost_ = true;
  raise<IoError>("cannot ", action, " the journal ", file_, ": ", std::strerror(error));
}

}  // namespace deepspeed::trial
