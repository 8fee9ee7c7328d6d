// ds_io --folder DIR measures how fast a folder's disk reads and writes, without the page cache. It prints
// the config section `aio` that is best for it.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/io/disk_rate.h"
#include "deepspeed/launcher/program_main.h"

namespace {

using deepspeed::io::AsyncIoOptions;
using deepspeed::io::DiskRate;
using deepspeed::io::DiskRateOptions;

struct Arguments {
  std::string folder = ".";
  std::string output;
  DiskRateOptions rate;
  std::vector<size_t> block_sizes = {size_t{128} << 10, size_t{1} << 20, size_t{8} << 20};
  std::vector<size_t> queue_depths = {4, 8, 32};
  std::vector<size_t> threads = {1, 2};
  bool single_submit = false;
  bool sequential_requests = false;
};

struct Measured {
  AsyncIoOptions tuning;
  DiskRate rate;
  /// Returns the rate, in bytes per second, of reading and then writing each byte.
  double both() const { return 1.0 / (1.0 / rate.read + 1.0 / rate.write); }
};

std::vector<AsyncIoOptions> tunings_of(const Arguments& arguments) {
  std::vector<AsyncIoOptions> tunings;
  for (const size_t block : arguments.block_sizes) {
    for (const size_t depth : arguments.queue_depths) {
      for (const size_t threads : arguments.threads)
        tunings.push_back({block, depth, threads, arguments.single_submit, !arguments.sequential_requests});
    }
  }
  return tunings;
}

Measured measure_best(const Arguments& arguments) {
  Measured best;
  std::cout << "block_size  queue_depth  threads  read GB/s  write GB/s\n";
  for (const AsyncIoOptions& tuning : tunings_of(arguments)) {
    const Measured measured{tuning, deepspeed::io::measure_disk(arguments.folder, arguments.rate, tuning)};
    std::cout << std::setw(10) << tuning.block_bytes << std::setw(13) << tuning.queue_depth << std::setw(9)
              << tuning.num_threads << std::fixed << std::setprecision(2) << std::setw(11)
              << measured.rate.read / 1e9 << std::setw(12) << measured.rate.write / 1e9 << std::endl;
    if (best.rate.read == 0.0 || measured.both() > best.both()) best = measured;
  }
  return best;
}

nlohmann::ordered_json aio_section(const AsyncIoOptions& tuning) {
  return {{"aio",
           {{"block_size", tuning.block_bytes},
            {"queue_depth", tuning.queue_depth},
            {"intra_op_parallelism", tuning.num_threads},
            {"single_submit", tuning.single_submit},
            {"overlap_events", tuning.overlap_events}}}};
}

/// Prints the section, or writes it to the file `output` unless that is empty.
void show(const std::string& section, const std::string& output) {
  if (output.empty()) {
    std::cout << section << "\n";
    return;
  }
  std::ofstream file(output);
  file << section << "\n";
  file.close();
  if (!file) deepspeed::raise<deepspeed::IoError>("--output: cannot write ", output);
  std::cout << "wrote " << output << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures the disk of a folder, and writes the config section `aio` that is best for it");
  Arguments arguments;
  const CLI::AsSizeValue size(/*kb_is_1000=*/false);
  app.add_option("--folder,--nvme_dir", arguments.folder, "Where a file is written and read")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--io_size", arguments.rate.bytes, "Bytes of the file: 400M, 1G")
      ->transform(size)
      ->capture_default_str();
  app.add_option("--loops", arguments.rate.loops, "Times, of which the fastest counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--block_size", arguments.block_sizes, "Bytes of a request: 1M; several are compared")
      ->transform(size);
  app.add_option("--queue_depth", arguments.queue_depths, "Requests under way; several are compared")
      ->check(CLI::PositiveNumber);
  app.add_option("--io_parallel", arguments.threads, "Threads; several are compared")
      ->check(CLI::PositiveNumber);
  app.add_flag("--single_submit", arguments.single_submit, "Each request by a system call of its own");
  app.add_flag("--sequential_requests", arguments.sequential_requests,
               "queue_depth requests are done before the next ones start");
  app.add_flag("--validate", arguments.rate.validate, "Compare what is read with what was written");
  app.add_option("--output", arguments.output, "A file for the section `aio`; else it is printed");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  return deepspeed::launcher::exit_of_work(
      "ds_io", [&] { show(aio_section(measure_best(arguments).tuning).dump(2), arguments.output); });
}
