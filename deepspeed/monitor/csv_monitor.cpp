#include "deepspeed/monitor/csv_monitor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"

namespace deepspeed::monitor {
namespace {

std::string file_name_of(std::string name) {
  std::ranges::replace(name, '/', '_');
  std::ranges::replace(name, ' ', '_');
  return name + ".csv";
}

/// Returns the shortest text that parses to the same number.
std::string text_of(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 32> text;
  const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
  return {text.begin(), end};
}

/// Opens the file for appending. Returns -1, with errno, if it is a link or not a regular file.
int open_end(const std::filesystem::path& file) {
  const int handle =
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  struct stat status {};
  if (handle < 0 || (::fstat(handle, &status) == 0 && S_ISREG(status.st_mode))) return handle;
  ::close(handle);
  errno = EINVAL;
  return -1;
}

bool write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) return false;
    done += size_t(std::max<ssize_t>(count, 0));
  }
  return true;
}

void append(const std::filesystem::path& file, const std::string& column, const std::string& lines) {
  const int handle = open_end(file);
  const bool is_new = handle >= 0 && ::lseek(handle, 0, SEEK_END) == 0;
  const bool written = handle >= 0 && write_all(handle, (is_new ? "step," + column + "\n" : "") + lines);
  const int error = errno;
  if (handle >= 0) ::close(handle);
  if (written) return;
  raise<IoError>("monitor: cannot write ", file, ": ",
                 error == ELOOP ? "it is a symbolic link, which is not followed" : std::strerror(error));
}

}  // namespace

CsvMonitor::CsvMonitor(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (!std::filesystem::is_directory(folder_))
    raise<IoError>("monitor: cannot make the folder ", folder_, ": ", error.message());
}

void CsvMonitor::write_events(const std::vector<Event>& events) {
  std::map<std::string, std::string> lines;  // by name
  for (const Event& event : events)
    lines[event.name] += std::to_string(event.step) + "," + text_of(event.value) + "\n";
  for (const auto& [name, text] : lines)
    append(folder_ / file_name_of(name), name.substr(name.rfind('/') + 1), text);
}

}  // namespace deepspeed::monitor
