// What all Accelerators of a process share: the ranks, the device, and the plugins.
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <c10/core/Device.h>

#include "deepspeed/accelerate/plugin/deepspeed_plugin.h"
#include "deepspeed/base/export.h"
#include "deepspeed/comm/init.h"

namespace deepspeed::accelerate {

enum class DistributedType { kNo, kMultiCpu, kMultiGpu, kDeepSpeed };

/// Returns Accelerate's name: NO, MULTI_CPU, MULTI_GPU or DEEPSPEED.
DEEPSPEED_API std::string name_of(DistributedType type);

using PluginPtr = std::shared_ptr<DeepSpeedPlugin>;
/// Holds plugins by name, in the order in which they were given.
using NamedPlugins = std::vector<std::pair<std::string, PluginPtr>>;

/// Shows the state that the first Accelerator of the process has made. All handles show the same state.
class DEEPSPEED_API AcceleratorState {
 public:
  /// Throws UsageError before there is an Accelerator.
  AcceleratorState();

  /// Makes the state, or returns the one that is there. Joins the job if nobody has. Throws UsageError, with
  /// Accelerate's words, for arguments that differ from those of the state that is there.
  static AcceleratorState make(const std::optional<std::string>& mixed_precision, bool cpu,
                               NamedPlugins plugins);
  static bool is_initialized();
  /// Forgets the state, so that the next Accelerator makes another one. The ranks stay connected.
  static void reset();

  const comm::World& world() const;
  DistributedType distributed_type() const;
  const std::string& backend() const;  ///< "" without other ranks
  at::Device device() const;
  int num_processes() const;
  int process_index() const;
  int local_process_index() const;
  bool is_main_process() const { return process_index() == 0; }
  bool is_local_main_process() const { return local_process_index() == 0; }
  bool is_last_process() const { return process_index() == num_processes() - 1; }
  /// Returns "no", "fp16" or "bf16". With DeepSpeed it is what the selected plugin's config says.
  std::string mixed_precision() const;

  /// Returns the selected plugin; null without DeepSpeed.
  const PluginPtr& deepspeed_plugin() const;
  const NamedPlugins& deepspeed_plugins() const;
  /// Returns the plugin of a name. Throws UsageError for an unknown name.
  const PluginPtr& get_deepspeed_plugin(const std::string& name) const;
  /// Makes the plugin of a name the one that the next prepare() takes.
  void select_deepspeed_plugin(const std::string& name);

  /// Returns the text that Python's print(AcceleratorState()) prints.
  std::string to_string() const;

 private:
  struct Shared;
  explicit AcceleratorState(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  static std::shared_ptr<Shared>& current();

  std::shared_ptr<Shared> shared_;
};

DEEPSPEED_API std::ostream& operator<<(std::ostream& out, const AcceleratorState& state);

}  // namespace deepspeed::accelerate
