// Reads and writes the manifest: JSON with the size and checksums of each file of a tag, and its own
// checksum.
//
// to_text() adds a checksum of the list of files, and parse_manifest() checks it, so that an altered manifest
// is rejected. find_damage() compares only names and sizes, which is fast enough for every tag. FileReader
// compares contents when they are read. Lists of tags are sorted by the modification time of the manifest.
// They leave out universal checkpoints and folders without a complete manifest.
#include "deepspeed/checkpoint/tag/manifest.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/message.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/file/crc32.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

constexpr size_t kDigits = 8;                          // of a checksum
constexpr size_t kMaxManifestBytes = size_t{1} << 30;  // enough for checkpoints of about 30 TB

void append_hex(std::string& text, uint32_t value) {
  for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 0xF];
}

uint32_t parse_hex(const char* digits) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits, digits + kDigits, value, 16);
  if (error != std::errc() || end != digits + kDigits) raise<CheckpointError>("a checksum is not a number");
  return value;
}

Json to_json(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, sums] : manifest.files) {
    std::string digits;
    for (const uint32_t crc : sums.crcs) append_hex(digits, crc);
    files[name] = {{"bytes", sums.size}, {"crc32", digits}};
  }
  return files;
}

/// Returns the checksum of the list of files, which detects an altered manifest.
std::string own_sum(const Json& files) {
  const std::string text = files.dump();
  std::string digits;
  append_hex(digits, crc32(0, text.data(), text.size()));
  return digits;
}

FileSums parse_sums(const Json& json) {
  FileSums sums{json.at("bytes").get<uint64_t>(), {}};
  const auto& digits = json.at("crc32").get_ref<const std::string&>();
  if (digits.size() / kDigits != (sums.size + kSumChunkBytes - 1) / kSumChunkBytes ||
      digits.size() % kDigits != 0)
    raise<CheckpointError>("checksums are missing");
  for (size_t at = 0; at < digits.size(); at += kDigits) sums.crcs.push_back(parse_hex(digits.data() + at));
  return sums;
}

/// Lists the complete tags that satisfy `is_wanted`, by the time of their manifests, newest first.
template <class IsWanted>
std::vector<std::string> find_tags(const std::filesystem::path& dir, const IsWanted& is_wanted) {
  using Found = std::pair<std::filesystem::file_time_type, std::string>;
  std::vector<Found> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string tag = entry.path().filename().string();
    if (tag.starts_with('.') || !entry.is_directory(error) || is_universal(entry.path())) continue;
    try {
      const Manifest manifest = read_manifest(entry.path());
      if (manifest.files.empty() || find_damage(entry.path(), manifest)) continue;
      if (!is_wanted(entry, manifest)) continue;
    } catch (const Error&) {
      continue;
    }
    found.emplace_back(std::filesystem::last_write_time(manifest_path(entry.path()), error), tag);
  }
  std::ranges::sort(found, std::greater<Found>());
  std::vector<std::string> tags;
  for (auto& [time, tag] : found) tags.push_back(std::move(tag));
  return tags;
}

}  // namespace

std::optional<FileSums> Manifest::sums_of(const std::filesystem::path& file) const {
  const auto found = files.find(file.filename().string());
  return found == files.end() ? std::nullopt : std::optional(found->second);
}

std::optional<FileSums> Manifest::sums_of(const std::filesystem::path& file,
                                          const std::filesystem::path& tag_folder) const {
  const auto found = files.find(file.lexically_relative(tag_folder).generic_string());
  return found == files.end() ? std::nullopt : std::optional(found->second);
}

std::string to_text(const Manifest& manifest) {
  const Json files = to_json(manifest);
  Json json{{"chunk_bytes", kSumChunkBytes}, {"files", files}, {"crc32", own_sum(files)}};
  if (manifest.in_turn) json["in_turn"] = true;
  return json.dump();
}

Manifest parse_manifest(const std::string& text) {
  try {
    const Json json = parse_json(text, "its text", kMaxManifestBytes);
    const Json& files = json.at("files");
    if (json.at("chunk_bytes") != kSumChunkBytes || json.at("crc32") != own_sum(files))
      raise<CheckpointError>("it does not match its own checksum");
    Manifest manifest;
    manifest.in_turn = json.value("in_turn", false);
    for (const auto& [name, sums] : files.items()) manifest.files.emplace(name, parse_sums(sums));
    return manifest;
  } catch (const Json::exception& error) {
    raise<CheckpointError>(error.what());
  } catch (const ConfigError& error) {
    raise<CheckpointError>(error.what());
  }
}

void write_manifest(const Folder& folder, const Manifest& manifest) {
  write_text_atomically(folder, manifest_path("").string(), to_text(manifest) + "\n");
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = manifest_path(folder);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return {};
  try {
    return parse_manifest(read_text_file(path, kMaxManifestBytes));
  } catch (const CheckpointError& error) {
    raise<CheckpointError>(path, " is altered or torn: ", error.what());
  }
}

std::optional<std::string> find_damage(const std::filesystem::path& folder, const Manifest& manifest,
                                       const std::function<bool(const std::string&)>& is_needed) {
  for (const auto& [name, sums] : manifest.files) {
    if (is_needed && !is_needed(name)) continue;
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(folder / name, error);
    if (!std::filesystem::exists(status)) return message("the file ", folder / name, " is missing");
    if (!std::filesystem::is_regular_file(status))
      return message(folder / name, " is not a regular file, as it was when it was saved");
    const uint64_t size = std::filesystem::file_size(folder / name, error);
    if (size != sums.size)
      return message("the file ", folder / name, " has ", size, " bytes, expected ", sums.size);
  }
  return std::nullopt;
}

std::vector<std::string> find_complete_tags(const std::filesystem::path& dir) {
  return find_tags(dir, [](const auto&, const Manifest&) { return true; });
}

std::vector<std::string> find_tags_in_turn(const std::filesystem::path& dir) {
  return find_tags(dir, [](const std::filesystem::directory_entry& entry, const Manifest& manifest) {
    return manifest.in_turn && !entry.is_symlink() && is_default_tag(entry.path().filename().string());
  });
}

}  // namespace deepspeed::checkpoint
