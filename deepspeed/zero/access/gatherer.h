// Makes parameters whole: chooses each one's route, starts its gather and ends it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/access/gather_ranks.h"
#include "deepspeed/zero/access/gatherable.h"
#include "deepspeed/zero/access/live_params.h"

namespace deepspeed::zero {

struct GathererOptions {
  config::ParamGatherConfig keys = {};
  int num_ranks = 1;  // of the shard group
  // Number of ranks that together keep a second copy of gathered parameters until the shards change, each a
  // part. It divides num_ranks; 0: no second copy.
  int num_near = 0;
  int near_rank = 0;
};

/// Starts and ends gathers. Calls that start one are collective. The caller holds a lock.
class Gatherer {
 public:
  /// Starts the gather of `shards` in one collective (GatherRanks::start).
  using Start = std::function<std::shared_ptr<ShardGather>(std::vector<std::shared_ptr<Shard>> shards,
                                                           at::ScalarType dtype, at::Device device,
                                                           const GatherRoute& route)>;

  /// `live` must outlive this object.
  Gatherer(GathererOptions options, Start start, LiveParams& live)
      : options_(std::move(options)), start_collective_(std::move(start)), live_(live) {}
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  /// Starts gathers of partitioned parameters of one dtype. Small ones travel together, large ones alone.
  /// exact: does not quantize, even if the config asks for it. Throws UsageError while suspended.
  void start(const std::vector<Gatherable*>& wanted, bool exact = false);
  /// Starts the gather of one parameter. First releases others if the limit on live elements requires it.
  void start_one(Gatherable& param, bool exact = false);
  /// Waits for the values of a parameter that is being gathered. Throws CommError and IoError.
  void finish(Gatherable& param);
  /// Finishes a gather whose result is not needed. An error shows up in the group's next collective.
  void finish_unwanted(Gatherable& param) noexcept;
  void make_whole(Gatherable& param);
  /// Makes the parameter whole with the shards' exact values, unless an operator uses rounded ones.
  void make_exactly_whole(Gatherable& param);

  /// Returns whether passes such as forward get quantized values of the parameter.
  bool is_quantized_for_passes(const Gatherable& param) const;

  /// Forbids use until resume(), because the shards are moved elsewhere. why: the reason, for errors.
  void suspend(std::string why) { suspended_ = std::move(why); }
  void resume() { suspended_.clear(); }
  bool is_suspended() const { return !suspended_.empty(); }
  /// Throws UsageError naming the parameter while suspended.
  void check_not_suspended(const Gatherable& param) const;

 private:
  GatherRoute route_of(const Gatherable& param, bool exact) const;
  void start_together(const std::vector<Gatherable*>& params, std::vector<std::shared_ptr<Shard>> shards,
                      const GatherRoute& route);
  /// Saves this rank's secondary part of gathered values, unless that is up to date.
  void keep_secondary(Gatherable& param) const;

  const GathererOptions options_;
  const Start start_collective_;
  LiveParams& live_;
  std::string suspended_;  // why; "": not suspended
};

}  // namespace deepspeed::zero
