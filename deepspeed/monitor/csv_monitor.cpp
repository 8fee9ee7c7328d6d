#include "deepspeed/monitor/csv_monitor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "deepspeed/base/error.h"

namespace deepspeed::monitor {
namespace {

std::string file_name_of(std::string name) {
  std::ranges::replace(name, '/', '_');
  std::ranges::replace(name, ' ', '_');
  return name + ".csv";
}

/// Returns the shortest text that is read as the same number.
std::string text_of(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 32> text;
  const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
  return {text.begin(), end};
}

void append(const std::filesystem::path& file, const std::string& column, const std::string& lines) {
  errno = 0;
  std::ofstream stream(file, std::ios::app);
  stream.seekp(0, std::ios::end);
  if (stream.tellp() == std::ofstream::pos_type(0)) stream << "step," << column << "\n";
  stream << lines << std::flush;
  if (stream) return;
  raise<IoError>("monitor: cannot write ", file, errno != 0 ? std::string(": ") + std::strerror(errno) : "");
}

}  // namespace

CsvMonitor::CsvMonitor(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (!std::filesystem::is_directory(folder_))
    raise<IoError>("monitor: cannot make the folder ", folder_, ": ", error.message());
}

void CsvMonitor::write_events(const std::vector<Event>& events) {
  std::map<std::string, std::string> lines;  // of each name
  for (const Event& event : events)
    lines[event.name] += std::to_string(event.step) + "," + text_of(event.value) + "\n";
  for (const auto& [name, text] : lines)
    append(folder_ / file_name_of(name), name.substr(name.rfind('/') + 1), text);
}

}  // namespace deepspeed::monitor
