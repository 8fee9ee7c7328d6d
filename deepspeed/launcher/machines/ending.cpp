#include "deepspeed/launcher/machines/ending.h"

#include <algorithm>
#include <utility>

#include "deepspeed/base/message.h"
#include "deepspeed/launcher/args/exit_code.h"

namespace deepspeed::launcher {
namespace {

constexpr auto kSettleTime = std::chrono::milliseconds(300);
constexpr auto kStopPatience = std::chrono::seconds(9);

}  // namespace

bool Ending::take_failure(Failed failure, Clock::time_point now) {
  if (failure.code < 1 || failure.code > 255) failure.code = kErrorExitCode;  // the range of a failed process
  if (failure_) {
    const bool is_cause = !is_announced_ && has_run() && failure_->code < 128 && failure.code >= 128;
    if (is_cause) failure_ = std::move(failure);
    return false;
  }
  if (signal_ != 0 && failure.code >= 128) return false;  // ranks end by the signal that was forwarded
  failure_ = std::move(failure);
  announce_at_ = has_run() ? now + kSettleTime : now;
  give_up_at_ = now + kStopPatience;
  return true;
}

bool Ending::take_signal(int number, Clock::time_point now) {
  const bool stops_all = signal_ != 0 || !has_run();
  if (signal_ == 0) signal_ = number;
  if (stops_all) give_up_at_ = now + kStopPatience;
  return stops_all;
}

void Ending::take_lost_host(const std::string& host) {
  if (std::find(lost_hosts_.begin(), lost_hosts_.end(), host) == lost_hosts_.end())
    lost_hosts_.push_back(host);
}

std::optional<std::string> Ending::text_to_announce(Clock::time_point now) {
  if (!failure_ || is_announced_ || now < *announce_at_) return std::nullopt;
  is_announced_ = true;
  const char* outlook = "; nothing was started";
  if (has_run())
    outlook =
        num_machines_ > 1 ? "; the ranks of all machines are being stopped" : "; all ranks are being stopped";
  return message(failure_->text, outlook, failure_->details);
}

JobEnd Ending::end() const {
  if (signal_ != 0) return {128 + signal_, false, lost_hosts_};
  return {failure_ ? failure_->code : 0, has_run() && failure_, lost_hosts_};
}

}  // namespace deepspeed::launcher
