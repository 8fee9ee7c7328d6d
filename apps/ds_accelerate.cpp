// ds_accelerate writes Accelerate's YAML file and starts programs with its settings (docs/accelerate.md).
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "deepspeed/accelerate/launch/launch_command.h"
#include "deepspeed/accelerate/questions/config_command.h"
#include "deepspeed/launcher/program_main.h"

namespace {

constexpr const char* kName = "ds_accelerate";

/// Runs `launch`, whose words after the program belong to the program.
int launch(const std::vector<std::string>& words) {
  int code = 0;
  const int of_error = deepspeed::launcher::exit_of_work(
      "ds_accelerate launch", [&] { code = deepspeed::accelerate::run_launch(words); });
  return of_error != 0 ? of_error : code;
}

/// Launches the program that tries an Accelerator out, which lies beside this one.
int test(const std::string& config_file) {
  const auto own = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> words = {(own.parent_path() / "ds_accelerate_test").string()};
  if (!config_file.empty()) words.insert(words.begin(), {"--config_file", config_file});
  const int code = launch(words);
  if (code == 0) std::cout << "Test is a success! You are ready for your distributed training!\n";
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace deepspeed::accelerate;
  if (argc > 1 && std::string(argv[1]) == "launch")
    return launch(std::vector<std::string>(argv + 2, argv + argc));

  CLI::App app{"Accelerate's way of working, for programs in C++ and Python.", kName};
  app.require_subcommand(1);
  ConfigCommand command;
  std::string precision = "no";
  auto* config = app.add_subcommand("config", "Asks about machines and DeepSpeed, and writes the YAML file");
  config->add_option("--config_file", command.config_file,
                     "The file to write (default_config.yaml of the cache folder)");
  config->add_option("--answers", command.answers_file,
                     "Answers by the ids of the questions, in YAML or JSON");
  config->add_option("--answer", command.answers, "One answer, ID=VALUE; may be given several times");
  auto* simple = app.add_subcommand("default-config", "Writes the file for this machine, without questions");
  simple->add_option("--config_file", command.config_file, "The file to write");
  simple->add_option("--mixed_precision", precision, "no, fp16 or bf16")
      ->check(CLI::IsMember({"no", "fp16", "bf16"}));
  auto* env = app.add_subcommand("env", "Prints versions, the machine and the file");
  env->add_option("--config_file", command.config_file, "The file to show");
  auto* tried = app.add_subcommand("test", "Launches a small training, to see that the file's settings work");
  tried->add_option("--config_file", command.config_file, "The file to try");
  app.add_subcommand("launch", "Starts a program, one process a GPU, with the settings of the file");
  if (const auto code = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *code;
  if (tried->parsed()) return test(command.config_file);
  return deepspeed::launcher::exit_of_work(kName, [&] {
    if (config->parsed()) run_config(command, std::cin, std::cout);
    if (simple->parsed()) run_default_config(command.config_file, precision, std::cout);
    if (env->parsed()) run_env(command.config_file, std::cout);
  });
}
