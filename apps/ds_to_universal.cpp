// ds_to_universal --input_folder DIR/TAG --output_folder DIR/NAME converts a checkpoint to files by
// parameter. These load at any stage and on any number of ranks.
#include <cstddef>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/launcher/program_main.h"

namespace {

/// Shows progress on one terminal line, which it overwrites.
void show_progress(size_t done, size_t all) {
  std::cerr << "\r" << done << " of " << all << " parameters" << (done == all ? "\n" : "") << std::flush;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Turns a checkpoint of any ZeRO stage into a universal one");
  std::string input_folder;
  std::string output_folder;
  int num_extract_workers = 4;
  bool keep_temp_folder = false;
  bool no_strict = false;
  bool inject_missing_state = false;
  deepspeed::checkpoint::UniversalOptions options;
  app.add_option("--input_folder", input_folder, "The folder of a tag, for example run/global_step100")
      ->required();
  app.add_option("--output_folder", output_folder,
                 "The folder to write, for example run/global_step100_universal; latest_universal beside it "
                 "then names it")
      ->required();
  const auto* extract = app.add_option("--num_extract_workers", num_extract_workers,
                                       "Not needed: nothing is extracted to files of its own")
                            ->check(CLI::PositiveNumber);
  app.add_option("--num_merge_workers", options.num_workers,
                 "Threads, each with one state of one parameter in memory")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--keep_temp_folder", keep_temp_folder, "Not needed: there are no intermediate files");
  app.add_flag("--no_strict", no_strict,
               "Only warn of patterns in universal_checkpoint_info that fit no parameter");
  app.add_flag("--inject_missing_state", inject_missing_state,
               "Not needed: a universal_checkpoint_info that is missing is always added");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  options.strict = !no_strict;
  if (extract->count() > 0)
    std::cout << "--num_extract_workers: nothing is extracted; --num_merge_workers sets the threads\n";
  if (keep_temp_folder)
    std::cout << "--keep_temp_folder: parameters are written at once, there is no such folder\n";
  if (inject_missing_state)
    std::cout << "--inject_missing_state: universal_checkpoint_info is always added where it is missing\n";
  if (::isatty(STDERR_FILENO) != 0) options.progress = show_progress;
  return deepspeed::launcher::exit_of_work("ds_to_universal", [&] {
    deepspeed::checkpoint::convert_to_universal(input_folder, output_folder, options);
    std::cout << "wrote " << output_folder << "\n";
  });
}
