#include "progress.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <unistd.h>

namespace examples {
namespace {

constexpr auto kTerminalInterval = std::chrono::milliseconds(100);
constexpr double kNewestShare = 0.1;  // weight of the newest step in the running mean of the step time

template <class... Values>
std::string print(const char* pattern, Values... values) {
  char buffer[128];
  const int length = std::snprintf(buffer, sizeof buffer, pattern, values...);
  return std::string(buffer, static_cast<size_t>(std::clamp<int>(length, 0, sizeof buffer - 1)));
}

}  // namespace

std::string format_duration(double seconds) {
  const auto total = static_cast<long>(std::lround(std::max(0.0, seconds)));
  if (total >= 3600) return print("%ld:%02ld:%02ld", total / 3600, total / 60 % 60, total % 60);
  return print("%ld:%02ld", total / 60, total % 60);
}

std::string format(const StepReport& report) {
  std::string text = print("step %ld/%ld  loss %.4f  lr %.2e", static_cast<long>(report.step),
                           static_cast<long>(report.num_steps), report.loss, report.lr);
  if (report.grad_norm) text += print("  norm %.2f", *report.grad_norm);
  text += print("  %.1fk tok/s  %.0f MB  ", report.tokens_per_second / 1e3,
                static_cast<double>(report.memory_bytes) / 1e6);
  return text + format_duration(report.seconds_left) + " left";
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total_pages = 0, resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return 0;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

Progress::Progress(std::FILE* stream, bool silent, int64_t num_steps, int64_t plain_every,
                   int64_t tokens_per_step)
    : stream_(stream),
      silent_(silent),
      terminal_(isatty(fileno(stream)) == 1),
      num_steps_(num_steps),
      plain_every_(plain_every),
      tokens_per_step_(tokens_per_step),
      last_step_(Clock::now()) {}

Progress::~Progress() {
  if (line_shown_) std::fputc('\n', stream_);
}

void Progress::measure() {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_step_).count();
  seconds_per_step_ =
      seconds_per_step_ == 0.0 ? seconds : (1.0 - kNewestShare) * seconds_per_step_ + kNewestShare * seconds;
  last_step_ = now;
}

void Progress::step(int64_t step, double loss, double lr, std::optional<double> grad_norm) {
  measure();
  const bool last = step == num_steps_;
  const bool due = terminal_ ? last_step_ - last_shown_ >= kTerminalInterval : step % plain_every_ == 0;
  if (silent_ || !(due || last)) return;
  const StepReport report{step,
                          num_steps_,
                          loss,
                          lr,
                          grad_norm,
                          static_cast<double>(tokens_per_step_) / std::max(seconds_per_step_, 1e-9),
                          resident_bytes(),
                          seconds_per_step_ * static_cast<double>(num_steps_ - step)};
  clear_line();
  std::fputs(format(report).c_str(), stream_);
  if (!terminal_) std::fputc('\n', stream_);
  line_shown_ = terminal_;
  std::fflush(stream_);
  last_shown_ = last_step_;
}

void Progress::note(const std::string& text) {
  if (silent_) return;
  clear_line();
  std::fprintf(stream_, "%s\n", text.c_str());
  std::fflush(stream_);
}

void Progress::restart_clock() { last_step_ = Clock::now(); }

void Progress::clear_line() {
  if (line_shown_) std::fputs("\r\033[K", stream_);
  line_shown_ = false;
}

}  // namespace examples
