#include "deepspeed/zero/agree_after.h"

#include <exception>
#include <string>
#include <vector>

#include "deepspeed/base/error.h"

namespace deepspeed::zero {

void agree_after(const comm::ProcessGroup& group, const char* where, const char* what,
                 const std::function<void()>& work) {
  std::string failure;
  std::exception_ptr own;
  try {
    work();
  } catch (const std::exception& error) {
    failure = error.what();
    own = std::current_exception();
  }
  if (group.all_reduce_scalar(own ? 1.0 : 0.0, comm::ReduceOp::kMax) == 0.0) return;
  const std::vector<std::string> failures = group.all_gather_text(failure);
  if (own) std::rethrow_exception(own);
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (!failures[rank].empty()) raise<IoError>(where, what, " failed on rank ", rank, ": ", failures[rank]);
  }
  raise<IoError>(where, what, " failed on another rank");
}

}  // namespace deepspeed::zero
