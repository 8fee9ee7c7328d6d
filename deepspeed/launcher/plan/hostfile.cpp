#include "deepspeed/launcher/plan/hostfile.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

constexpr int kMaxSlots = 65536;
constexpr size_t kMaxHostfileBytes = size_t{16} << 20;

/// Parses a line that is neither blank nor a comment; nothing where it does not fit the grammar. Text after
/// the number is allowed, as in DeepSpeed.
std::optional<HostSlots> parse_line(const std::string& line) {
  std::istringstream words(line);
  std::string host, slots;
  constexpr std::string_view kKey = "slots=";
  if (!(words >> host >> slots) || !slots.starts_with(kKey)) return std::nullopt;
  const size_t end = slots.find_first_not_of("0123456789", kKey.size());
  const auto count = parse_whole_number(slots.substr(kKey.size(), end - kKey.size()));
  if (!count || *count > kMaxSlots) return std::nullopt;
  return HostSlots{host, first_slots(*count)};
}

}  // namespace

std::vector<int> first_slots(int n) {
  std::vector<int> slots(static_cast<size_t>(n));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

ResourcePool parse_hostfile(const std::string& text, const std::string& name) {
  ResourcePool pool;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const size_t start = line.find_first_not_of(" \t\r");
    if (start == std::string::npos || line[start] == '#') continue;
    const auto entry = start == 0 ? parse_line(line) : std::nullopt;
    if (!entry) {
      raise<UsageError>(name, " line ", number, ": bad entry '", line, "', expected 'HOST slots=N'");
    }
    const auto same_host = [&](const HostSlots& other) { return other.host == entry->host; };
    if (std::any_of(pool.begin(), pool.end(), same_host)) {
      raise<UsageError>(name, " line ", number, ": multiple entries for host '", entry->host,
                        "', expected one with the sum of its slots");
    }
    pool.push_back(*entry);
  }
  if (pool.empty()) {
    raise<UsageError>(name,
                      " names no host, expected lines 'HOST slots=N'; remove the file to use this machine");
  }
  return pool;
}

std::optional<ResourcePool> read_hostfile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  if (std::filesystem::equivalent(path, "/dev/null", error)) return std::nullopt;  // a usual word for none
  return parse_hostfile(read_text_file(path, kMaxHostfileBytes, "hostfile"), path);
}

}  // namespace deepspeed::launcher
