#include "deepspeed/checkpoint/tag/tag_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

constexpr size_t kLongestTag = 240;  // bytes; file systems allow 255, and the staging name is longer

constexpr size_t kLongestTagPath = 1000;  // bytes, like the limit of read_latest()

const std::array<std::string, 3>& names_beside_tags() {
  static const std::array<std::string, 3> names{latest_path("").string(), latest_universal_path("").string(),
                                                zero_to_fp32_script_path("").string()};
  return names;
}

bool is_control_character(unsigned char byte) { return std::iscntrl(byte) != 0; }

/// Returns why a name cannot be that of a tag; "" if it can.
std::string what_is_wrong_with(const std::string& tag) {
  if (tag.empty()) return "is empty";
  if (tag.find('/') != std::string::npos) return "has a slash; other folders belong into the directory";
  if (tag.starts_with('.')) return "begins with a dot, as the names of what is not finished do";
  if (std::ranges::any_of(tag, is_control_character)) return "has a control character";
  if (std::isspace(static_cast<unsigned char>(tag.back())) != 0) return "ends with a space";
  if (tag.size() > kLongestTag) return message("has ", tag.size(), " bytes, expected at most ", kLongestTag);
  if (is_name_beside_tags(tag) || is_temporary_beside_tags(tag))
    return "is the name of a file beside the tags";
  return "";
}

}  // namespace

bool is_name_beside_tags(const std::string& name) {
  return std::ranges::find(names_beside_tags(), name) != names_beside_tags().end();
}

bool is_temporary_beside_tags(const std::string& name) {
  constexpr std::string_view kEnding = ".tmp";
  return std::ranges::any_of(names_beside_tags(), [&](const std::string& file) {
    if (!name.starts_with(file + ".") || !name.ends_with(kEnding)) return false;
    if (name.size() <= file.size() + 1 + kEnding.size()) return false;
    const std::string_view process(name.data() + file.size() + 1,
                                   name.size() - file.size() - 1 - kEnding.size());
    return process.find_first_not_of("0123456789") == std::string_view::npos;
  });
}

void require_tag_name(const std::string& tag) {
  const std::string wrong = what_is_wrong_with(tag);
  if (wrong.empty()) return;
  const std::string text = Json(tag).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  raise<UsageError>("the tag ", text, " ", wrong, "; expected a plain name for a folder, such as \"best\"");
}

void require_tag_inside(const std::string& tag) {
  const std::filesystem::path folder = std::filesystem::path(tag).lexically_normal();
  if (tag.size() > kLongestTagPath || tag.find('\0') != std::string::npos)
    raise<UsageError>("the tag has ", tag.size(), " bytes, expected the name of a folder");
  if (!folder.is_absolute() && *folder.begin() != ".." && *folder.begin() != ".") return;
  raise<UsageError>("the tag '", tag, "' leads out of the folder of the checkpoints; expected the name of a ",
                    "folder inside of it, such as \"best\": to load from elsewhere, give that directory");
}

}  // namespace deepspeed::checkpoint
