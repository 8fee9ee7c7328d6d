// ds_experiment runs a search over trials that an experiment's YAML describes (docs/trial.md).
#include <filesystem>
#include <iostream>
#include <thread>

#include <CLI/CLI.hpp>

#include "deepspeed/launcher/program_main.h"
#include "deepspeed/trial/runner/runner.h"

namespace {

using namespace deepspeed::trial;

void run(const std::string& file, RunOptions options) {
  const Experiment experiment = read_experiment(file);
  if (options.folder.empty()) options.folder = std::filesystem::path(file).stem().string() + "_search";
  if (options.launcher.empty())
    options.launcher = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "deepspeed").string();
  const Searcher searcher = run_experiment(experiment, options, std::cout);
  print_trials(searcher, experiment.searcher, std::cout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Runs the trials of an experiment on this machine. A search that was stopped goes on by the same "
      "command.",
      "ds_experiment"};
  std::string file;
  RunOptions options;
  options.slots = std::max(1u, std::thread::hardware_concurrency());
  app.add_option("experiment", file, "The experiment's YAML file")->required();
  app.add_option("--dir", options.folder, "The search's folder (the file's name and _search)");
  app.add_option("--slots", options.slots, "Devices, or ranks on the CPU, that trials share (the cores)")
      ->check(CLI::PositiveNumber);
  if (const auto code = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *code;
  return deepspeed::launcher::exit_of_work("ds_experiment", [&] { run(file, options); });
}
