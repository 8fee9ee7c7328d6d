#include "deepspeed/config/table/source.h"

#include <system_error>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/read.h"

namespace deepspeed::config {
namespace {

constexpr const char* kTextName = "config text";
constexpr const char* kBase64Name = "config text in base64";
constexpr const char* kByteOrderMark = "\xEF\xBB\xBF";

/// Returns whether a string is JSON text: it starts with a brace or a comment. Any other string is a path.
bool is_json_text(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n", text.starts_with(kByteOrderMark) ? 3 : 0);
  if (begin == std::string::npos) return false;
  if (text[begin] == '{' || text[begin] == '[') return true;
  const bool comment =
      text[begin] == '#' || text.compare(begin, 2, "//") == 0 || text.compare(begin, 2, "/*") == 0;
  return comment && text.find('{', begin) != std::string::npos;
}

/// Reads the file with that name. If there is none, decodes the name itself as base64. Throws ConfigError if
/// it is neither.
Json read_file(const std::filesystem::path& path) {
  std::error_code status;
  if (std::filesystem::exists(path, status)) return read_json_file(path);
  const auto text = decode_base64(path.string());
  if (text && is_json_text(*text)) return parse_json(*text, kBase64Name);
  raise<ConfigError>(
      "got ", json_excerpt(Json(path.string())),
      ", expected the path of an existing file, JSON text that starts with '{', or the base64 ",
      "of such a text");
}

}  // namespace

ConfigSource::ConfigSource(const char* path_or_text) : ConfigSource(std::string(path_or_text)) {}

ConfigSource::ConfigSource(std::string path_or_text) {
  if (is_json_text(path_or_text)) {
    source_ = Text{std::move(path_or_text)};
  } else {
    source_ = std::filesystem::path(std::move(path_or_text));
  }
}

ConfigSource::ConfigSource(std::filesystem::path path) : source_(std::move(path)) {}

ConfigSource::ConfigSource(Json object) : source_(std::move(object)) {}

Json ConfigSource::read() const {
  Json value;
  std::string where;
  if (const auto* text = std::get_if<Text>(&source_)) {
    where = kTextName;
    value = parse_json(text->text, kTextName);
  } else if (const auto* path = std::get_if<std::filesystem::path>(&source_)) {
    where = path->string();
    value = read_file(*path);
  } else {
    require_bounded_depth(std::get<Json>(source_));
    value = std::get<Json>(source_);
  }
  if (!value.is_object()) {
    raise<ConfigError>(where, where.empty() ? "" : ": ", "got ", json_excerpt(value),
                       ", expected a JSON object");
  }
  return value;
}

}  // namespace deepspeed::config
