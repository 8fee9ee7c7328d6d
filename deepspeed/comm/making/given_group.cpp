#include "deepspeed/comm/making/given_group.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/backends/table.h"

namespace deepspeed::comm {

std::string check_given_group(const c10::intrusive_ptr<c10d::ProcessGroup>& given) {
  if (!given) {
    raise<UsageError>(
        "the group to adopt is null, expected one that this process belongs to; a process without a group "
        "adopts none");
  }
  backend_of(*given);
  const std::string& name = given->getGroupName();
  return name.empty() ? "adopted" : "adopted " + name;
}

std::string given_group_is_gone(int rank) {
  return message("rank ", rank,
                 " destroyed the process group that its world was adopted from (Python's "
                 "destroy_process_group() does that); everything made from that world ended with it");
}

}  // namespace deepspeed::comm
