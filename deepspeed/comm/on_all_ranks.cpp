#include "deepspeed/comm/on_all_ranks.h"

#include <exception>
#include <string>
#include <vector>

#include "deepspeed/base/error.h"

namespace deepspeed {

void on_all_ranks(const comm::ProcessGroup& group, const char* what, const std::function<void()>& work) {
  std::string failure;
  std::exception_ptr own;
  try {
    work();
  } catch (const std::exception& error) {
    failure = error.what();
    own = std::current_exception();
  }
  const std::vector<std::string> failures = group.all_gather_text(failure);
  if (own) std::rethrow_exception(own);
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (!failures[rank].empty())
      raise<CheckpointError>("checkpoint", what, " failed on rank ", rank, ": ", failures[rank]);
  }
}

}  // namespace deepspeed
