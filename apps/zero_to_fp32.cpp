// zero_to_fp32 CHECKPOINT_DIR OUTPUT extracts the fp32 weights of a checkpoint. PyTorch or safetensors can
// read the result.
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"

#include <cstdint>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "deepspeed/launcher/program_main.h"

namespace {

constexpr uint64_t kBarWidth = 40;

/// Shows progress on one terminal line, which it overwrites.
void show_progress(uint64_t done_bytes, uint64_t all_bytes) {
  const uint64_t filled = all_bytes == 0 ? kBarWidth : kBarWidth * done_bytes / all_bytes;
  std::cerr << "\r[" << std::string(filled, '#') << std::string(kBarWidth - filled, ' ') << "] "
            << done_bytes / 1'000'000 << " of " << all_bytes / 1'000'000 << " MB"
            << (done_bytes == all_bytes ? "\n" : "") << std::flush;
}

void print_weights(const std::string& checkpoint_dir, const deepspeed::checkpoint::ConvertOptions& options) {
  for (const auto& [name, tensor] : deepspeed::checkpoint::get_fp32_state_dict_from_zero_checkpoint(
           checkpoint_dir, options.tag, options.exclude_frozen_parameters, options.mp_rank)) {
    std::cout << name << ": " << tensor.sizes() << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Turns a checkpoint of any ZeRO stage into fp32 weights");
  std::string checkpoint_dir;
  std::string output;
  std::string tag;
  bool debug = false;
  deepspeed::checkpoint::ConvertOptions options;
  app.add_option("checkpoint_dir", checkpoint_dir, "The folder that holds 'latest' and the tags")->required();
  app.add_option(
         "output", output,
         "A folder for pytorch_model.bin (or its shards), or a file that ends in .bin, .pt or .safetensors")
      ->required();
  app.add_option("--max_shard_size", options.max_shard_size,
                 "The most bytes of one file in a folder: 5GB, 200MiB")
      ->capture_default_str();
  app.add_flag("--safe_serialization", options.safe_serialization, "Write safetensors");
  app.add_option("-t,--tag", tag,
                 "The tag to read, for example global_step100; by default the one in 'latest'");
  app.add_flag("--exclude_frozen_parameters", options.exclude_frozen_parameters,
               "Leave frozen parameters out");
  app.add_option(
      "--mp_rank", options.mp_rank,
      "The model-parallel rank whose part is written, where ranks have cut layers; by default each "
      "part has files of its own");
  app.add_flag("-d,--debug", debug, "Print each weight");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  if (!tag.empty()) options.tag = tag;
  if (::isatty(STDERR_FILENO) != 0) options.progress = show_progress;
  return deepspeed::launcher::exit_of_work("zero_to_fp32", [&] {
    if (debug) print_weights(checkpoint_dir, options);
    for (const auto& file :
         deepspeed::checkpoint::convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir, output, options)) {
      std::cout << "wrote " << file.string() << "\n";
    }
  });
}
