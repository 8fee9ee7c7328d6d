// ds_report shows what was built, for which devices, and what this machine can use of it. With a hostfile it
// reports on each host.
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <sys/statvfs.h>

#include "deepspeed/base/message.h"
#include "deepspeed/base/version.h"
#include "deepspeed/device/accelerator/device_report.h"
#include "deepspeed/io/queue/transfer_queue.h"
#include "deepspeed/launcher/machines/on_hosts.h"
#include "deepspeed/launcher/program_main.h"

namespace {

constexpr size_t kWidth = 33;

void show(const std::string& name, const std::string& value) {
  std::cout << name << " " << std::string(name.size() < kWidth ? kWidth - name.size() : 1, '.') << " "
            << value << "\n";
}

/// Returns the size of the folder through which the ranks of a machine exchange tensors.
std::string size_of_shared_memory() {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) return "there is none";
  return deepspeed::message(uint64_t(status.f_blocks) * status.f_frsize >> 20, " MiB");
}

void report() {
  const std::string architectures = DEEPSPEED_CUDA_ARCHITECTURES;
  show("deepspeed-cpp", deepspeed::version());
  show("CUDA kernels", architectures.empty() ? "not built" : "for " + architectures);
  for (const auto& [name, value] : deepspeed::device::device_report()) show(name, value);
  const std::string no_uring = deepspeed::io::why_no_uring();
  show("io_uring", no_uring.empty() ? "reads and writes files" : "none, threads stand for it: " + no_uring);
  show("cores", std::to_string(std::thread::hardware_concurrency()));
  show("shared memory (/dev/shm)", size_of_shared_memory());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Says what was built, for which devices, and what of it this machine can use.", "ds_report");
  std::string hostfile, port;
  app.add_option("-f,--hostfile", hostfile, "Report of all its hosts, each line with its host in front");
  app.add_option("-p,--ssh_port", port, "The port of their ssh servers");
  if (const auto code = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *code;
  if (hostfile.empty()) return deepspeed::launcher::exit_of_work("ds_report", report);
  std::vector<std::string> words = {"-f", hostfile};
  if (!port.empty()) words.insert(words.end(), {"-p", port});
  words.push_back(std::filesystem::read_symlink("/proc/self/exe"));  // the same path on all machines
  return deepspeed::launcher::run_on_hosts(words);
}
