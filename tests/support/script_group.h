// A process group as a script's torch.distributed makes one, for tests of what adopts it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace deepspeed::testing {

/// The two handles that torch.distributed holds for a script.
struct ScriptGroup {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  c10::intrusive_ptr<c10d::Store> store;
};

/// Connects `size` ranks over Gloo, loopback and the store of the file, which they share.
ScriptGroup make_script_group(int rank, int size, const std::string& file);
/// Connects them over a TCP store, which rank 0 serves at the port as Python's env:// has it.
ScriptGroup make_script_group(int rank, int size, int port);
/// Connects ranks over a store that is there; `name` is the group's, and prefixes its keys.
c10::intrusive_ptr<c10d::ProcessGroup> make_script_group(int rank, int size,
                                                         const c10::intrusive_ptr<c10d::Store>& store,
                                                         const std::string& name);

/// Sums a number over the ranks of the group, as a script would.
double script_sum(c10d::ProcessGroup& group, double value);

/// How many operations were started on script groups of this process, and how often one was aborted or shut
/// down.
int num_script_calls();

/// Runs `body(rank)` in forked processes, of which none joins a job by itself; what goes wrong in one fails
/// the calling test. Returns what the bodies returned.
std::vector<std::string> run_scripts(int size, const std::function<std::string(int rank)>& body);

}  // namespace deepspeed::testing
