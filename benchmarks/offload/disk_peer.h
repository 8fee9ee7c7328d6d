// What a disk gives without us: the peer of the benchmarks of offloading.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include <CLI/CLI.hpp>

#include "deepspeed/base/json.h"
#include "deepspeed/io/disk_rate.h"

namespace deepspeed::benchmarks {

/// A pass moves so many bytes; writes may be 0, or as many as reads.
struct Moved {
  int64_t read = 0;
  int64_t written = 0;
  int64_t all() const { return read + written; }
};

/// Seconds in which fio moves them, mixed, in `folder`, by requests as aio's. Throws std::runtime_error.
inline double fio_seconds(const std::string& folder, const io::AsyncIoOptions& aio, const Moved& bytes) {
  const std::string file = (std::filesystem::path(folder) / "disk_peer.fio").string();
  const std::string kind = bytes.written > 0 ? " --rw=rw --rwmixread=50" : " --rw=read";
  const std::string command = "fio --name=peer --filename='" + file + "'" + kind +
                              " --direct=1 --ioengine=io_uring --bs=" + std::to_string(aio.block_bytes) +
                              " --iodepth=" + std::to_string(aio.queue_depth) +
                              " --size=" + std::to_string(std::max(bytes.read, bytes.written)) +
                              " --io_size=" + std::to_string(bytes.all()) +
                              " --randrepeat=1 --output-format=json";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  if (!pipe) throw std::runtime_error("cannot start fio");
  std::string text;
  char part[4096];
  while (const size_t count = std::fread(part, 1, sizeof part, pipe.get())) text.append(part, count);
  const size_t begin = text.find('{');
  if (begin == std::string::npos) throw std::runtime_error("fio printed no JSON: is it installed?");
  const auto job = Json::parse(text.substr(begin)).at("jobs").at(0);
  const double moved = job["read"]["io_bytes"].get<double>() + job["write"]["io_bytes"].get<double>();
  const double milliseconds =
      std::max(job["read"]["runtime"].get<double>(), job["write"]["runtime"].get<double>());
  return milliseconds / 1e3 * (double(bytes.all()) / moved);
}

/// Seconds in which the library's own requests move them, first all reads and then all writes.
inline double own_seconds(const std::string& folder, const io::AsyncIoOptions& aio, const Moved& bytes) {
  io::DiskRateOptions options;
  options.bytes = uint64_t(std::min(std::max(bytes.read, bytes.written), int64_t{512'000'000}));
  options.loops = 1;
  const auto rate = io::measure_disk(folder, options, aio);
  return double(bytes.read) / rate.read + double(bytes.written) / rate.write;
}

/// What all of these benchmarks are told.
struct DiskArguments {
  std::string folder = ".";
  int loops = 5;
  bool fio = false;
  io::AsyncIoOptions aio;

  void add_to(CLI::App& app) {
    app.add_option("--folder", folder, "On the disk");
    app.add_option("--loops", loops, "Of which the median counts");
    app.add_option("--block_size", aio.block_bytes, "Bytes of a request");
    app.add_option("--queue_depth", aio.queue_depth, "Requests under way");
    app.add_option("--threads", aio.num_threads, "That move a part of each range");
    app.add_flag("--fio", fio, "Measure the disk by fio");
  }
  /// In which the disk alone moves so much.
  double seconds(const Moved& bytes) const {
    return fio ? fio_seconds(folder, aio, bytes) : own_seconds(folder, aio, bytes);
  }
  const char* of_the_rate() const { return fio ? " of fio's rate" : " of the disk's own rate"; }
};

}  // namespace deepspeed::benchmarks
