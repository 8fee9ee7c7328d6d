#include "deepspeed/comm/making/given_group.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/backends/table.h"

namespace deepspeed::comm {

std::string check_given_group(const c10::intrusive_ptr<c10d::ProcessGroup>& given) {
  if (!given) {
    raise<UsageError>(
        "the group to adopt is null, expected one of which this process is a rank; a process that is in "
        "none adopts none");
  }
  backend_of(*given);
  const std::string& name = given->getGroupName();
  return name.empty() ? "adopted" : "adopted " + name;
}

std::string given_group_is_gone(int rank) {
  return message("rank ", rank,
                 " destroyed the process group that its world was adopted from "
                 "(destroy_process_group() of Python does so); what was made of that world ended with it");
}

}  // namespace deepspeed::comm
