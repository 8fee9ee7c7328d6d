#include "deepspeed/comm/on_all_ranks.h"

#include <algorithm>
#include <exception>
#include <vector>

namespace deepspeed::comm {

std::optional<FailedRank> run_and_tell(const ProcessGroup& group, const std::function<void()>& work) {
  std::exception_ptr own;
  std::string reason;
  try {
    work();
  } catch (const std::exception& error) {
    own = std::current_exception();
    reason = error.what();
  } catch (...) {
    own = std::current_exception();
  }
  // The reason may be empty, so it cannot serve as the vote.
  if (group.all_reduce_scalar(own ? 1.0 : 0.0, ReduceOp::kMax) == 0.0) return std::nullopt;
  const std::vector<std::string> reports = group.all_gather_text(own ? "!" + reason : std::string());
  if (own) std::rethrow_exception(own);
  const auto failed =
      std::ranges::find_if(reports, [](const std::string& report) { return !report.empty(); });
  return FailedRank{static_cast<int>(failed - reports.begin()),
                    failed->size() > 1 ? failed->substr(1) : "an exception without a text"};
}

}  // namespace deepspeed::comm
