// Makes parameters whole: chooses the way on which each one comes, starts its gather and ends it.
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
  // Ranks that keep what a gather brought once more between them, each a part, until the shards change. Their
  // number divides num_ranks; 0: none do.
  int num_near = 0;
  int near_rank = 0;
};

/// Calls that start a gather are collective. The caller holds a lock.
class Gatherer {
 public:
  /// Starts one collective, as GatherRanks does.
  using Start = std::function<std::shared_ptr<ShardGather>(std::vector<std::shared_ptr<Shard>> shards,
                                                           at::ScalarType dtype, at::Device device,
                                                           const GatherRoute& route)>;

  /// `live` must outlive it.
  Gatherer(GathererOptions options, Start start, LiveParams& live)
      : options_(std::move(options)), start_collective_(std::move(start)), live_(live) {}
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  /// Starts gathers of partitioned parameters of one dtype: small ones travel together, large ones alone.
  /// exact: as the shards are, where passes get rounded values. Throws UsageError while suspended.
  void start(const std::vector<Gatherable*>& wanted, bool exact = false);
  /// Starts the gather of one parameter, and releases others where the limit asks for it.
  void start_one(Gatherable& param, bool exact = false);
  /// Waits for the values of a parameter that is on its way. Throws CommError and IoError.
  void finish(Gatherable& param);
  /// Does so for a parameter that nobody wants. The group's next collective says what is wrong.
  void finish_unwanted(Gatherable& param) noexcept;
  void make_whole(Gatherable& param);
  /// Makes it whole with the values of the shards themselves, unless an operator uses rounded ones.
  void make_exactly_whole(Gatherable& param);

  /// Whether passes get rounded values of it.
  bool is_quantized_for_passes(const Gatherable& param) const;

  /// Until resume(), the shards are not where they were, and `why` says so.
  void suspend(std::string why) { suspended_ = std::move(why); }
  void resume() { suspended_.clear(); }
  bool is_suspended() const { return !suspended_.empty(); }
  /// Throws UsageError, naming the parameter, while suspended.
  void check_not_suspended(const Gatherable& param) const;

 private:
  GatherRoute route_of(const Gatherable& param, bool exact) const;
  void start_together(const std::vector<Gatherable*>& params, std::vector<std::shared_ptr<Shard>> shards,
                      const GatherRoute& route);
  /// Keeps this rank's secondary part of what was gathered, where there is none of its present values.
  void keep_secondary(Gatherable& param) const;

  const GathererOptions options_;
  const Start start_collective_;
  LiveParams& live_;
  std::string suspended_;  // why; "": it is not
};

}  // namespace deepspeed::zero
