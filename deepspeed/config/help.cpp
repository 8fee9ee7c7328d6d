// Writes the documentation from the tables that the reader uses, so the two cannot differ.
//
// walk() and walk_types() visit all fields and all named types once, in table order. help_text(),
// option_list() and not_supported_yet() make lines from each field's headline. help_markdown() writes the
// introduction and a table per section. A test compares docs/config.md and the golden list of options with
// the results.
#include "deepspeed/config/help.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/config/config.h"
#include "deepspeed/config/help_search.h"
#include "deepspeed/config/table/field.h"
#include "deepspeed/config/table/named_type.h"

namespace deepspeed::config {
namespace {

std::string default_text(const Field& field) {
  if (field.kind == Kind::kSection) return "";
  if (field.required) return "; required";
  return "; default " + field.default_value.dump();
}

std::string supported_text(const Field& field) {
  std::string values;
  for (const Json& value : *field.supported_values) values += (values.empty() ? "" : ", ") + value.dump();
  return values;
}

std::string support_text(const Field& field) {
  if (!field.supported_values) return "";
  if (field.kind == Kind::kSection) return "; not supported yet";
  if (!field.refusal.empty()) return "; only " + supported_text(field) + ": " + field.refusal;
  return "; supported so far: " + supported_text(field);
}

/// Says what to use instead of a deprecated key.
std::string advice(const Field& field) {
  const std::string& replacement = field.deprecation->replacement;
  return replacement.empty() ? "without effect" : "use " + replacement;
}

std::string alias_text(const Field& field) {
  std::string text;
  for (const std::string& alias : field.aliases) text += "; also " + alias;
  if (field.deprecation) text += "; deprecated, " + advice(field);
  return text;
}

/// Says under which conditions values act; "" for a key that always acts.
std::string effect_text(const Field& field) {
  if (field.no_effect.empty()) return "";
  return (field.effective_where ? "; " : "; no effect: ") + field.no_effect;
}

/// Says in a sentence when the key acts, or that it does nothing.
std::string effect_sentence(const Field& field) {
  if (field.no_effect.empty()) return "";
  if (!field.effective_where) return " *No effect*: " + field.no_effect + ".";
  std::string sentence = " " + field.no_effect + ".";
  sentence[1] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[1])));
  return sentence;
}

std::string headline(const Field& field, const std::string& path) {
  return path + ": " + expected_value(field) + default_text(field) + support_text(field) +
         effect_text(field) + alias_text(field);
}

/// Calls `visit(field, path)` for the field and all below it, in table order.
template <class Visit>
void walk(const Field& field, const std::string& path, const Visit& visit) {
  if (!path.empty()) visit(field, path);
  for (const Field& child : field.children) walk(child, join(path, child.key), visit);
}

/// Returns the types that a section's key `type` can name; none for most sections.
const std::vector<NamedType>& types_of(const std::string& section) {
  static const std::vector<NamedType> none;
  if (section == "optimizer") return optimizer_types();
  return section == "scheduler" ? scheduler_types() : none;
}

std::string type_text(const NamedType& type) {
  return type.meaning + (type.any_case ? " The name is read in any case." : "") +
         (type.needs_untested_flag ? " From ZeRO stage 1 on it needs zero_allow_untested_optimizer." : "");
}

/// Calls `visit(type, path)` for each type of both sections: "optimizer.params[AdamW]".
template <class Visit>
void walk_types(const Visit& visit) {
  for (const std::string section : {"optimizer", "scheduler"}) {
    for (const NamedType& type : types_of(section)) {
      visit(type, section + ".params[" + type.name + "]");
    }
  }
}

/// Returns whether the path is in the section or is the section itself. An empty section means the whole
/// config.
bool is_within(const std::string& path, const std::string& section) {
  return section.empty() || path == section || path.starts_with(section + ".") ||
         path.starts_with(section + "[");
}

std::vector<HelpEntry> help_entries() {
  std::vector<HelpEntry> entries;
  const auto add = [&](const Field& field, const std::string& path) {
    entries.push_back({path, headline(field, path), field.meaning});
  };
  walk(all_options(), "", add);
  walk_types([&](const NamedType& type, const std::string& path) {
    entries.push_back({path, path + ":", type_text(type)});
    for (const Field& field : type.params) add(field, join(path, field.key));
  });
  return entries;
}

constexpr const char* kIntroduction = R"(# The config

Every key that DeepSpeed documents, with what it takes, its default and its meaning. This page is written from the
tables that the reader of the config itself uses (`deepspeed --help-config-markdown > docs/config.md`; a test keeps it
current). `deepspeed --help-config [section]` shows the same on a terminal, and `deepspeed --help-config lr` what has that
word in its key, its path or its meaning.

- A config is the path of a file, JSON text, JSON text in base64, or a JSON object. Files and text may have comments
  (`//`, `/* */`, `#`) and trailing commas. A key given twice is an error.
- An unknown key is an error that names the nearest known one. So is a value of another type or out of its range.
- Whole numbers may be written `5e8` or `"16"`, truth values `0`, `1`, `"on"`, `"no"`. A number may be a text, `"1e-3"`, as
  some readers of YAML give it, also where DeepSpeed passes the text on and fails later (`optimizer.params`).
- `"auto"` stands for the default in the sections marked so. Elsewhere the client has to put a value in its place:
  only it knows the batch sizes and the learning rate that it trains with.
- A deprecated key still works, with a warning, unless its replacement stands beside it.
- In C++ a loaded config is a struct with a member for each key (`config/config.h`). `config/training_config.h` has the
  classes of the manual of version 0.3, and the base for a program's own.
- *No effect* marks a key that is read and does nothing in this version. "Only stage 3 uses it" and the like say where a
  key acts. A line of the log says so where a key is set that does nothing.
- *so far* lists the values that this version supports of those that are documented; the others are refused with an
  error that says so.
)";

/// Escapes a text for a table cell.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return escaped;
}

std::string row(const Field& field) {
  std::string takes = expected_value(field);
  if (field.supported_values && field.kind == Kind::kSection) takes += "; *not supported yet*";
  if (field.supported_values && field.kind != Kind::kSection) {
    takes += (field.refusal.empty() ? "; *so far* " : "; only ") + supported_text(field);
  }
  const std::string text = field.kind == Kind::kSection ? ""
                           : field.required             ? "required"
                                                        : "`" + field.default_value.dump() + "`";
  std::string names = "`" + field.key + "`";
  for (const std::string& alias : field.aliases) names += ", `" + alias + "`";
  std::string meaning = field.meaning;
  if (field.deprecation) meaning += " Deprecated: " + advice(field) + ".";
  if (!field.refusal.empty()) meaning += " *Not supported*: " + field.refusal + ".";
  meaning += effect_sentence(field);
  return "| " + names + " | " + cell(takes) + " | " + text + " | " + cell(meaning) + " |\n";
}

constexpr const char* kTableHead = "\n| key | takes | default | meaning |\n|---|---|---|---|\n";

void append_types(std::string& text, const std::string& section) {
  for (const NamedType& type : types_of(section)) {
    text += "\n### " + section + ".params of " + type.name + "\n\n" + type_text(type) + "\n" + kTableHead;
    for (const Field& field : type.params) text += row(field);
  }
}

void append_section(std::string& text, const Field& section, const std::string& path) {
  text += path.empty() ? "\n## The top level\n" : "\n## " + path + "\n\n" + section.meaning + "\n";
  if (section.auto_is_default) text += "`\"auto\"` stands for each key's default.\n";
  if (section.open) text += "Further keys are kept as they are.\n";
  text += kTableHead;
  for (const Field& field : section.children) text += row(field);
  append_types(text, path);
  for (const Field& field : section.children) {
    if (field.kind == Kind::kSection) append_section(text, field, join(path, field.key));
  }
}

}  // namespace

std::string help_markdown() {
  std::string text = kIntroduction;
  append_section(text, all_options(), "");
  return text;
}

std::string help_text(const std::string& subject) {
  const std::vector<HelpEntry> entries = help_entries();
  std::vector<HelpEntry> shown;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(shown),
               [&](const HelpEntry& entry) { return is_within(entry.path, subject); });
  if (shown.empty()) shown = search_help(entries, subject);
  if (shown.empty()) {
    raise<UsageError>("got ", json_excerpt(Json(subject)),
                      ", expected a section, a key or a part of a key or its meaning",
                      help_suggestion(entries, subject));
  }
  std::string text;
  for (const HelpEntry& entry : shown) text += entry.headline + "\n    " + entry.meaning + "\n";
  return text;
}

std::vector<std::string> not_supported_yet() {
  std::vector<std::string> paths;
  walk(all_options(), "", [&](const Field& field, const std::string& path) {
    if (field.supported_values && field.refusal.empty()) paths.push_back(path);
  });
  return paths;
}

std::vector<std::string> option_list() {
  std::vector<std::string> lines;
  walk(all_options(), "",
       [&](const Field& field, const std::string& path) { lines.push_back(headline(field, path)); });
  walk_types([&](const NamedType& type, const std::string& path) {
    for (const Field& field : type.params) lines.push_back(headline(field, join(path, field.key)));
  });
  return lines;
}

}  // namespace deepspeed::config
