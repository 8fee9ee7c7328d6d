// Questions are answered by a person, line by line, or by a file.
#include "deepspeed/accelerate/questions/asker.h"

#include <algorithm>
#include <istream>
#include <ostream>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/coerce.h"
#include "deepspeed/config/table/nearest_key.h"

namespace deepspeed::accelerate {

std::optional<Json> Asker::answer(const std::string& id, const std::string& prompt) {
  asked_.insert(id);
  if (!in_) {
    const auto found = answers_.find(id);
    return found == answers_.end() ? std::optional<Json>() : *found;
  }
  *out_ << prompt << std::flush;
  std::string line;
  if (!std::getline(*in_, line))
    raise<ConfigError>(
        id, ": the input ended before this question was answered; --answers FILE gives the answers");
  return line.empty() ? std::optional<Json>() : Json(line);
}

Json Asker::ask(const std::string& id, const std::string& question, ValueKind kind, const Json& otherwise) {
  const std::string shown = otherwise.is_string() ? otherwise.get<std::string>() : otherwise.dump();
  const std::string prompt = question + (otherwise.is_null() ? " " : " [" + shown + "] ");
  while (true) {
    const auto given = answer(id, prompt);
    if (!given && !otherwise.is_null()) return otherwise;
    if (!given && !in_) raise<ConfigError>(id, ": the answer is missing, and has no default: ", question);
    if (!given) continue;
    const auto fault = fault_of(*given, kind, {});
    if (!fault && kind == ValueKind::kInt) return *config::as_int(*given);
    if (!fault && kind == ValueKind::kFloatOrAuto) return *config::as_float(*given);
    if (!fault && kind == ValueKind::kBool) return *config::as_bool(*given);
    if (!fault) return *given;
    if (!in_) raise<ConfigError>(id, ": got ", json_excerpt(*given), ", ", *fault);
    *out_ << "Got " << json_excerpt(*given) << ", " << *fault << ".\n";
  }
}

std::string Asker::choose(const std::string& id, const std::string& question,
                          const std::vector<std::string>& choices, size_t otherwise) {
  std::string prompt = question + "\n";
  std::string list;
  for (size_t i = 0; i < choices.size(); ++i) {
    prompt += "  " + std::to_string(i) + ": " + choices[i] + "\n";
    list += (list.empty() ? "" : ", ") + choices[i];
  }
  prompt += "Number or text [" + choices[otherwise] + "] ";
  while (true) {
    const auto given = answer(id, prompt);
    if (!given) return choices[otherwise];
    const std::string text = given->is_string() ? given->get<std::string>() : given->dump();
    for (const std::string& choice : choices) {
      if (lowercase(choice) == lowercase(text)) return choice;
    }
    const auto number = config::as_int(*given);
    if (in_ && number && *number >= 0 && *number < static_cast<int64_t>(choices.size()))
      return choices[static_cast<size_t>(*number)];
    if (!in_) raise<ConfigError>(id, ": got ", json_excerpt(*given), ", expected one of ", list);
    *out_ << "Got " << json_excerpt(*given) << ", expected one of " << list << ".\n";
  }
}

bool Asker::agree(const std::string& id, const std::string& question,
                  const std::vector<std::string>& following) {
  const bool led_to = std::any_of(following.begin(), following.end(),
                                  [&](const std::string& next) { return answers_.contains(next); });
  if (led_to && !answers_.contains(id)) {
    asked_.insert(id);
    return true;
  }
  while (true) {
    const auto given = answer(id, question + " [yes/NO] ");
    if (!given) return false;
    if (const auto yes = config::as_bool(*given)) return *yes;
    if (!in_) raise<ConfigError>(id, ": got ", json_excerpt(*given), ", expected yes or no");
    *out_ << "Please enter yes or no.\n";
  }
}

void Asker::require_all_taken() const {
  for (const auto& [id, value] : answers_.items()) {
    if (asked_.contains(id)) continue;
    std::vector<std::string> known(asked_.begin(), asked_.end());
    for (const DeepSpeedField& field : deepspeed_fields()) known.emplace_back(field.key);
    raise<ConfigError>(path_part(id), ": no question has this id, or the other answers skip it",
                       config::did_you_mean(config::nearest_keys(id, known, 1)));
  }
}

}  // namespace deepspeed::accelerate
