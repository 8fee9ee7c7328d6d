#include "deepspeed/launcher/plan/hostfile.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/base/text.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

constexpr int kMaxSlots = 65536;
constexpr size_t kMaxSlotsOfAll = size_t{1} << 20;
constexpr size_t kMaxHostfileBytes = size_t{16} << 20;

/// Parses a line that is neither blank nor a comment. Returns nothing if it does not fit the grammar. As in
/// DeepSpeed, text may follow the number.
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

void check_host_name(const std::string& host, const std::string& where) {
  const auto is_plain = [](std::string_view text, std::string_view signs) {
    if (text.empty() || signs.substr(0, 3).find(text.front()) != std::string_view::npos) return false;
    return std::all_of(text.begin(), text.end(), [&](char c) {
      return (static_cast<unsigned char>(c) < 128 && std::isalnum(static_cast<unsigned char>(c)) != 0) ||
             c == '_' || signs.find(c) != std::string_view::npos;
    });
  };
  const std::string_view text = host;
  const size_t at = text.find('@');
  const bool user_is_plain = at == std::string_view::npos || is_plain(text.substr(0, at), ".-");
  if (user_is_plain && is_plain(text.substr(at == std::string_view::npos ? 0 : at + 1), ".-:")) return;
  raise<UsageError>(where, "host '", host,
                    "': expected a name or an address, of letters, digits and -._: that begins with no sign");
}

ResourcePool decode_world_info(const std::string& text) {
  const auto json = decode_base64(text);
  const Json world = json ? Json::parse(*json, nullptr, false) : Json();
  const auto refuse = [&] {
    raise<UsageError>("--world_info is '", text.substr(0, 80),
                      "', expected {host: [slots]} as JSON in base64");
  };
  if (!world.is_object() || world.empty()) refuse();
  ResourcePool pool;
  for (const auto& [host, slots] : world.items()) {
    check_host_name(host, "--world_info: ");
    HostSlots node{host, {}};
    if (!slots.is_array()) refuse();
    for (const Json& slot : slots) {
      if (!slot.is_number_unsigned() || slot.get<uint64_t>() > kMaxSlots) refuse();
      node.slots.push_back(slot.get<int>());
    }
    pool.push_back(std::move(node));
  }
  return pool;
}

std::string encode_world_info(const ResourcePool& pool) {
  Json world = Json::object();
  for (const HostSlots& node : pool) world[node.host] = node.slots;
  return encode_base64(world.dump());
}

ResourcePool parse_hostfile(const std::string& text, const std::string& name) {
  ResourcePool pool;
  std::set<std::string> hosts;
  size_t num_slots = 0;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const size_t start = line.find_first_not_of(" \t\r");
    if (start == std::string::npos || line[start] == '#') continue;
    const auto entry = start == 0 ? parse_line(line) : std::nullopt;
    if (!entry) {
      raise<UsageError>(name, " line ", number, ": bad entry '", line, "', expected 'HOST slots=N'");
    }
    check_host_name(entry->host, message(name, " line ", number, ": "));
    if (entry->slots.empty()) {
      raise<UsageError>(name, " line ", number, ": host '", entry->host,
                        "' has slots=0, expected 1 or more; leave the line out to leave the host out");
    }
    if (!hosts.insert(entry->host).second) {
      raise<UsageError>(name, " line ", number, ": multiple entries for host '", entry->host,
                        "', expected one with the sum of its slots");
    }
    num_slots += entry->slots.size();
    if (num_slots > kMaxSlotsOfAll)
      raise<UsageError>(name, " line ", number, ": more than ", kMaxSlotsOfAll, " slots in all");
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
  if (std::filesystem::equivalent(path, "/dev/null", error))
    return std::nullopt;  // often given to mean "no hostfile"
  return parse_hostfile(read_text_file(path, kMaxHostfileBytes, "hostfile"), path);
}

}  // namespace deepspeed::launcher
