#include "deepspeed/accelerate/questions/config_command.h"

#include <algorithm>
#include <istream>
#include <ostream>

#include <sys/utsname.h>
#include <unistd.h>

#include "deepspeed/accelerate/config/deepspeed_fields.h"
#include "deepspeed/accelerate/plugin/python_text.h"
#include "deepspeed/accelerate/questions/questionnaire.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/version.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::accelerate {
namespace {

std::filesystem::path file_or_default(const std::string& config_file) {
  return config_file.empty() ? default_config_file() : std::filesystem::path(config_file);
}

/// Returns the given answers by id. Those of the command line win. A whole config file holds answers as well:
/// its section `deepspeed_config` is flattened.
Json given_answers(const ConfigCommand& command) {
  Json answers = Json::object();
  if (!command.answers_file.empty()) {
    const YamlDocument document = read_yaml_file(command.answers_file);
    if (!document.value.is_object())
      raise<ConfigError>(command.answers_file, ": got ", json_excerpt(document.value),
                         ", expected answers by the ids of questions");
    answers = document.value;
    if (const Json section = answers.value("deepspeed_config", Json()); section.is_object()) {
      answers.erase("deepspeed_config");
      answers.update(section);
    }
  }
  for (const std::string& answer : command.answers) {
    const size_t equals = answer.find('=');
    if (equals == std::string::npos || equals == 0)
      raise<UsageError>("--answer: got ", json_excerpt(Json(answer)), ", expected ID=VALUE");
    answers[answer.substr(0, equals)] = parse_yaml(answer.substr(equals + 1), "--answer " + answer).value;
  }
  return answers;
}

/// Returns whether the answers are the values of a file, such as `distributed_type: DEEPSPEED`.
bool are_values_of_file(const Json& answers) {
  const Json type = answers.value("distributed_type", Json());
  return type == "DEEPSPEED" || type == "NO" || type == "MULTI_CPU" || type == "MULTI_GPU";
}

ClusterConfig config_of_values(const Json& answers) {
  Json values = Json::object();
  for (const auto& [key, value] : answers.items()) {
    const auto of_key = [&key = key](const DeepSpeedField& field) { return field.key == key; };
    const bool is_field = std::any_of(deepspeed_fields().begin(), deepspeed_fields().end(), of_key);
    (is_field ? values["deepspeed_config"] : values)[key] = value;
  }
  return ClusterConfig(YamlDocument{std::move(values), "the answers", {}});
}

/// Returns the config that the command's answers, or else a person's, lead to.
ClusterConfig config_of_command(const ConfigCommand& command, std::istream& in, std::ostream& out) {
  if (command.answers_file.empty() && command.answers.empty()) {
    Asker person(in, out);
    return ask_for_config(person);
  }
  const Json answers = given_answers(command);
  if (are_values_of_file(answers)) return config_of_values(answers);
  Asker given(answers);
  return ask_for_config(given);
}

}  // namespace

void run_config(const ConfigCommand& command, std::istream& in, std::ostream& out) {
  const ClusterConfig config = config_of_command(command, in, out);
  const auto path = file_or_default(command.config_file);
  config.to_file(path);
  out << "accelerate configuration saved at " << path.string() << "\n";
}

void run_default_config(const std::string& config_file, const std::string& mixed_precision,
                        std::ostream& out) {
  const auto path = file_or_default(config_file);
  if (std::filesystem::exists(path)) {
    out << "Configuration already exists at " << path.string()
        << ", will not override. Run `ds_accelerate config` manually or pass a different `--config_file`.\n";
    return;
  }
  config_of_this_machine(mixed_precision, launcher::read_machine().num_gpus).to_file(path);
  out << "accelerate configuration saved at " << path.string() << "\n";
}

void run_env(const std::string& config_file, std::ostream& out) {
  const launcher::Machine machine = launcher::read_machine();
  utsname system{};
  ::uname(&system);
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  out << "\nCopy-and-paste the text below in your GitHub issue\n\n"
      << "- `deepspeed-cpp` version: " << version() << "\n"
      << "- Platform: " << system.sysname << "-" << system.release << "-" << system.machine << "\n"
      << "- Accelerator: " << (machine.num_gpus > 0 ? "CUDA" : "N/A") << "\n"
      << "- GPUs: " << machine.num_gpus << "\n"
      << "- Cores: " << machine.cores.size() << "\n"
      << "- System RAM: " << static_cast<int64_t>(memory / (1 << 20)) / 1024.0 << " GB\n";
  const auto path = file_or_default(config_file);
  out << (config_file.empty() ? "- `Accelerate` default config:\n" : "- `Accelerate` config passed:\n");
  if (config_file.empty() && !std::filesystem::exists(path)) {
    out << "\tNot found\n";
    return;
  }
  const Json values = parse_yaml(ClusterConfig::from_file(path).to_yaml(), path.string()).value;
  for (const auto& [key, value] : values.items()) out << "\t- " << key << ": " << python_str(value) << "\n";
}

}  // namespace deepspeed::accelerate
