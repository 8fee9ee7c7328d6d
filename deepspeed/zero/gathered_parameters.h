// Partitioned parameters whole again: for a scope, to be read or changed, as DeepSpeed's
// zero.GatheredParameters does, or for good.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::zero {

class HoldableStorage;

/// While it lives the parameters are whole on every rank. Collective: all ranks make it with the same
/// parameters and end it. Without a modifier_rank, what a rank writes to them is seen on that rank until the
/// end, where the former values come back; a warning names the first such parameter of an engine. With one,
/// that rank may write, or all, and at the end its values become those of all ranks, also where it gave a
/// parameter other memory of the same type and sizes, as torch::load() does. A write of another rank to what
/// the modifier_rank does not write is an error at the end, on all ranks. Scopes nest; one that has a
/// modifier_rank can hold only such as have none. Tensors that are made over a parameter meanwhile (detach(),
/// view()) keep the values that it has at the end. Tensors that are not partitioned are left alone.
class DEEPSPEED_API GatheredParameters {
 public:
  /// modifier_rank: in the group over which the parameters are partitioned. Throws UsageError for a rank that
  /// is not there, and where one of the parameters is written under another GatheredParameters; CommError.
  explicit GatheredParameters(const std::vector<at::Tensor>& params,
                              std::optional<int> modifier_rank = std::nullopt);
  /// close(), unless an exception unwinds: then the parameters go back to what they were, without a word to
  /// other ranks.
  ~GatheredParameters() noexcept(false);
  GatheredParameters(const GatheredParameters&) = delete;
  GatheredParameters& operator=(const GatheredParameters&) = delete;

  /// Ends the scope early. A second call does nothing. Throws CommError; UsageError, naming the parameter,
  /// where one got other memory whose values it cannot take, and, on all ranks, where what one wrote is lost,
  /// as the modifier_rank did not write it.
  void close();

 private:
  /// A parameter, and its memory at the begin, as a tensor of its own.
  struct Gathered {
    at::Tensor param;
    at::Tensor memory;
    uint64_t before = 0;       // fingerprint of its values at the begin, where several ranks may write
    bool is_replaced = false;  // it got other memory
    bool has_aliases = false;  // other tensors lay over its memory at the begin
  };

  /// Parameters that got other memory get their own back, with the values of the other.
  void take_replaced();
  /// Whether one rank's values will become those of others.
  bool is_shared_write() const;
  /// A '1' for each parameter that this rank has written, a '0' for each other one.
  std::string written_here() const;
  /// Of a parameter that a rank has written and the modifier_rank has not; "" where there is none. The same
  /// on all ranks, which all call it.
  std::string text_of_lost_writes() const;
  /// Parameters that got other memory get their own back, without the values of the other.
  void forget_replaced() noexcept;
  /// Other tensors that have come to lie over the memory of the parameters become ordinary ones.
  void leave_to_aliases() noexcept;
  void drop(bool forget_writes) noexcept;

  std::vector<std::shared_ptr<HoldableStorage>> held_;
  std::vector<Gathered> gathered_;  // of each of them
  std::optional<int> modifier_rank_;
  int exceptions_ = 0;  // that were under way at its begin
};

/// Makes ordinary tensors, with all their values, of the parameters among `params` that are partitioned and
/// that no engine has: those of a zero::Init that has ended, and those of an engine that was dropped, or
/// ended by destroy({.keep_partitioned = true}). They keep their identity; others are left alone. Every rank
/// gets the whole model and needs the memory for it. Collective. Throws UsageError, naming the parameter,
/// where an engine has it still or somebody uses it, and where a rank has too little memory; CommError,
/// IoError: then some are whole already, and a further call goes on with the others.
DEEPSPEED_API void make_whole(const std::vector<at::Tensor>& params);

}  // namespace deepspeed::zero
