// Makes Gloo backends; no other file includes Gloo's headers.
#include "deepspeed/comm/backends/gloo.h"

#include <csignal>
#include <mutex>
#include <sstream>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "deepspeed/base/env.h"
#include "deepspeed/comm/job/address_list.h"

namespace deepspeed::comm {
namespace {

using c10d::ProcessGroupGloo;

// Closes the connections on abort, so that every waiting operation, here and on the peers, fails. Otherwise
// c10d's destructor, which joins the threads that run operations, would wait for the peers.
class AbortableGloo : public ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void abort() override {
    std::call_once(aborted_, [this] {
      for (const auto& context : contexts_) context->closeConnections();
    });
  }

 private:
  std::once_flag aborted_;
};

// Makes a peer's death during a write an error of the operation. By default, the system would end this
// process by a signal. A program that handles the signal keeps its handler.
void ignore_broken_pipes() {
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

void add_devices(const Job& job, ProcessGroupGloo::Options& options) {
  if (const auto names = env::get("GLOO_SOCKET_IFNAME")) {
    std::istringstream list(*names);
    for (std::string name; std::getline(list, name, ',');) {
      options.devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
    }
    return;
  }
  if (job.is_one_machine()) {
    options.devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    return;
  }
  const auto address = own_address_towards(job.master_addr);
  options.devices.push_back(address ? ProcessGroupGloo::createDeviceForHostname(*address)
                                    : ProcessGroupGloo::createDefaultDevice());
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const Job& job,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupDescription& group) {
  ignore_broken_pipes();
  auto options = ProcessGroupGloo::Options::create(job.timeout);
  add_devices(job, *options);
  auto backend = c10::make_intrusive<AbortableGloo>(store, group.rank, group.size(), options);
  // A rank may finish connecting before its peers. If it left the group then, they would find a closed
  // connection.
  backend->barrier({})->wait(job.timeout);
  return backend;
}

}  // namespace deepspeed::comm
