// A file of losses.
#pragma once

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include <deepspeed/base/error.h>

namespace examples {

/// Writes `step loss` for every step, so that two runs can be compared to the last bit.
class LossLog {
 public:
  explicit LossLog(const std::string& file) : file_(file) {
    if (!file.empty()) stream_.open(file);
    stream_.precision(std::numeric_limits<double>::max_digits10);
  }
  void write(int64_t step, double loss) {
    if (file_.empty()) return;
    stream_ << step << ' ' << loss << std::endl;
    if (!stream_) deepspeed::raise<deepspeed::IoError>(file_, " cannot be written");
  }

 private:
  std::string file_;
  std::ofstream stream_;
};

}  // namespace examples
