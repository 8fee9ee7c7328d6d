// ds_bench --ranks N measures the collectives between ranks, by size. The ranks run on this machine, or on
// several machines if the launcher starts ds_bench.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/group_nodes.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/job/job.h"
#include "deepspeed/comm/measure/measure.h"
#include "deepspeed/comm/measure/measure_links.h"
#include "deepspeed/launcher/program_main.h"

namespace {

namespace comm = deepspeed::comm;

struct Arguments {
  comm::MeasureOptions measure;
  int ranks = 2;
  std::vector<std::string> backends = {"shm", "gloo"};
  std::string unit = "Gbps";
  std::string dtype = "fp32";
  std::string output;
  std::string links;
  int64_t min_size = 1 << 10;
  int64_t max_size = 64 << 20;
  bool scan = false;
  bool own_memory = false;
};

const std::map<std::string, at::ScalarType>& dtypes() {
  static const std::map<std::string, at::ScalarType> all{
      {"fp32", at::kFloat}, {"fp16", at::kHalf}, {"bf16", at::kBFloat16}};
  return all;
}

/// Returns the sizes to measure. With `scan` each is four times the previous one, up to max_size.
std::vector<int64_t> sizes_of(const Arguments& arguments) {
  if (!arguments.scan) return {arguments.max_size};
  std::vector<int64_t> sizes;
  for (int64_t size = arguments.min_size; size < arguments.max_size; size *= 4) sizes.push_back(size);
  sizes.push_back(arguments.max_size);
  return sizes;
}

nlohmann::ordered_json as_json(const std::string& backend, const comm::World& world,
                               const std::vector<comm::Measured>& all) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& row : all)
    rows.push_back({{"operation", row.operation},
                    {"bytes", row.bytes},
                    {"milliseconds", row.milliseconds},
                    {"algorithm_gbps", row.bandwidth.algorithm},
                    {"bus_gbps", row.bandwidth.bus}});
  return {{"backend", backend},
          {"ranks", world.size()},
          {"ranks_per_node", world.ranks_per_node()},
          {"collectives", rows}};
}

void write_file(const std::string& path, const nlohmann::ordered_json& value) {
  std::ofstream file(path);
  file << value.dump(2) << "\n";
  file.close();
  if (!file) deepspeed::raise<deepspeed::IoError>("--output: cannot write ", path);
}

/// Measures the links of the job. Rank 0 prints the figures.
nlohmann::ordered_json measure_links(const Arguments& arguments, const comm::World& world) {
  const int per_node = world.ranks_per_node();
  const auto nodes = comm::ranks_by_node(world.group().global_ranks(), per_node);
  const auto node = world.own_group("node", "", nodes[size_t(world.rank() / per_node)]);
  const auto across =
      world.own_group("across", "", comm::ranks_at_place(nodes, size_t(world.rank() % per_node)));
  const auto figures = comm::measure_links(world.group(), node, across, {.trials = arguments.measure.trials});
  if (world.rank() == 0) {
    const auto tell = [](const char* what, const comm::LinkSpeed& speed) {
      std::cout << what << speed.gbps << " Gbit/s, latency " << speed.latency_us << " us" << std::endl;
    };
    tell("within a node, a rank:  ", figures.within_node);
    tell("between nodes, a node:  ", figures.between_nodes);
  }
  return comm::link_figures_json(figures);
}

/// Measures as one rank of the job. Rank 0 prints and returns the figures, others return null.
nlohmann::ordered_json measure(const Arguments& arguments, const std::string& backend,
                               const comm::InitOptions& job) {
  deepspeed::env::set("DEEPSPEED_SHARED_MEMORY", backend == "shm" ? "1" : "0");
  auto world = comm::init_distributed(job);
  const auto on_cores = std::max(1U, std::thread::hardware_concurrency() / unsigned(world.local_size()));
  at::set_num_threads(int(on_cores));
  if (!arguments.links.empty()) {
    auto links = measure_links(arguments, world);
    const bool is_first = world.rank() == 0;
    world.shutdown();
    return is_first ? links : nlohmann::ordered_json();
  }
  const auto all = comm::measure_collectives(world.group(), arguments.measure);
  nlohmann::ordered_json figures;
  if (world.rank() == 0) {
    std::cout << "== " << backend << ", " << arguments.dtype << "\n"
              << comm::measured_text(all, world.size(), arguments.unit == "GBps") << std::endl;
    figures = as_json(backend, world, all);
  }
  world.shutdown();
  return figures;
}

/// Runs `ranks` processes on this machine for one backend. Returns what rank 0 measured.
nlohmann::ordered_json measure_here(const Arguments& arguments, const std::string& backend,
                                    const std::filesystem::path& folder) {
  const auto result = folder / (backend + ".json");
  std::cout.flush();
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const pid_t process = ::fork();
    if (process < 0) deepspeed::raise<deepspeed::Error>("cannot start a rank: ", std::strerror(errno));
    if (process > 0) continue;
    std::_Exit(deepspeed::launcher::exit_of_work("ds_bench", [&] {
      const auto figures = measure(arguments, backend,
                                   {.dist_backend = "gloo",
                                    .auto_mpi_discovery = false,
                                    .verbose = false,
                                    .init_method = "file://" + (folder / (backend + ".store")).string(),
                                    .rank = rank,
                                    .world_size = arguments.ranks});
      if (rank == 0) write_file(result.string(), figures);
    }));
  }
  bool failed = false;
  for (int status = 0; ::wait(&status) > 0;) failed |= status != 0;
  if (failed) deepspeed::raise<deepspeed::Error>("a rank over ", backend, " failed; its reason is above");
  return nlohmann::ordered_json::parse(std::ifstream(result));
}

/// Runs all backends, one after the other. Returns an array of their figures.
nlohmann::ordered_json measure_on_this_machine(const Arguments& arguments) {
  std::string pattern = (std::filesystem::temp_directory_path() / "ds_bench_XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr)
    deepspeed::raise<deepspeed::IoError>("cannot make a folder ", pattern, ": ", std::strerror(errno));
  auto all = nlohmann::ordered_json::array();
  try {
    for (const auto& backend : arguments.backends) all.push_back(measure_here(arguments, backend, pattern));
  } catch (...) {
    std::filesystem::remove_all(pattern);
    throw;
  }
  std::filesystem::remove_all(pattern);
  return all;
}

/// Measures as the rank that a launcher started. Ranks other than 0 return null.
nlohmann::ordered_json measure_in_job(const Arguments& arguments) {
  if (arguments.backends.size() != 1)
    deepspeed::raise<deepspeed::UsageError>("--backends: ", arguments.backends.size(),
                                            " of them in a job that a launcher started, expected one");
  const auto& backend = arguments.backends[0];
  const auto figures = measure(arguments, backend, {.dist_backend = backend == "nccl" ? "nccl" : "gloo"});
  return figures.is_null() ? figures : nlohmann::ordered_json::array({figures});
}

/// Returns whether a launcher started this process as a rank: this library's, mpirun or srun.
bool is_in_job() {
  return deepspeed::env::get("RANK").has_value() || !comm::describe_job({}).launcher.empty();
}

void run(const Arguments& arguments) {
  if (!arguments.links.empty()) {
    auto first = arguments;
    first.backends.resize(1);
    const auto found = is_in_job() ? measure_in_job(first) : measure_on_this_machine(first);
    if (found.is_null()) return;
    write_file(arguments.links, found[0]);
    std::cout << "wrote " << arguments.links << "\n";
    return;
  }
  const auto figures = is_in_job() ? measure_in_job(arguments) : measure_on_this_machine(arguments);
  if (arguments.output.empty() || figures.is_null()) return;
  write_file(arguments.output, figures);
  std::cout << "wrote " << arguments.output << "\n";
}

void check(const Arguments& arguments) {
  using deepspeed::raise;
  using deepspeed::UsageError;
  if (arguments.min_size > arguments.max_size)
    raise<UsageError>("--minsize is above --maxsize, expected at most that");
  if (!arguments.links.empty() && !arguments.output.empty())
    raise<UsageError>(
        "--links measures links in place of collectives, so that nothing is left for --output; ",
        "run ds_bench twice");
  for (const auto& backend : arguments.backends)
    if (backend == "nccl" && !is_in_job())
      raise<UsageError>("--backends nccl needs a process a GPU: start it by deepspeed --num_gpus N ds_bench ",
                        "--backends nccl");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Measures the collectives between ranks: sizes, times, algorithm and bus bandwidth. By itself it "
      "starts ranks on this machine; started by deepspeed, mpirun or srun it is one rank");
  Arguments arguments;
  const CLI::AsSizeValue size(/*kb_is_1000=*/false);
  app.add_option("--ranks", arguments.ranks, "Processes of this machine")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option(
         "--backends,--backend", arguments.backends,
         "shm (memory that ranks of a machine share, else Gloo), gloo (sockets), nccl; several are compared")
      ->check(CLI::IsMember({"shm", "gloo", "nccl"}))
      ->capture_default_str();
  for (const auto& operation : comm::measured_operations()) {
    std::string flag = "--" + operation;
    std::replace(flag.begin(), flag.end(), '_', '-');
    app.add_flag_callback(
        flag, [&arguments, operation] { arguments.measure.operations.push_back(operation); },
        "Measure this; without any of these: all");
  }
  app.add_option("--maxsize", arguments.max_size, "Bytes of a collective's data: 64M, 1G")
      ->transform(size)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--minsize", arguments.min_size, "Bytes with which --scan begins")
      ->transform(size)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--scan", arguments.scan,
               "Measure sizes from --minsize to --maxsize, each four times the last");
  app.add_option("--dtype", arguments.dtype, "fp32, fp16 or bf16")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
      ->capture_default_str();
  app.add_option("--trials", arguments.measure.trials, "Calls that are timed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--warmups", arguments.measure.warmups, "Calls before them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--bw-unit", arguments.unit, "Gbps or GBps")
      ->check(CLI::IsMember({"Gbps", "GBps"}))
      ->capture_default_str();
  app.add_flag(
      "--own_memory", arguments.own_memory,
      "Tensors of ordinary memory, in place of buffers as the engine's, which ranks read without a copy");
  app.add_option("--output", arguments.output, "A JSON file for the figures");
  app.add_option(
      "--links", arguments.links,
      "Measure how fast the links within a node and between nodes are in place of collectives, over "
      "the first of --backends, and write that to this file, which DEEPSPEED_LINKS names to jobs");
  arguments.measure.operations.clear();
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  if (arguments.measure.operations.empty()) arguments.measure.operations = comm::measured_operations();
  arguments.measure.sizes = sizes_of(arguments);
  arguments.measure.dtype = dtypes().at(arguments.dtype);
  arguments.measure.in_buffers = !arguments.own_memory;
  return deepspeed::launcher::exit_of_work("ds_bench", [&] {
    check(arguments);
    run(arguments);
  });
}
