// Makes partitioned parameters whole: for a scope in which they are read or changed, like DeepSpeed's
// zero.GatheredParameters, or for good.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/unwinding.h"

namespace deepspeed::zero {

class HoldableStorage;

/// Keeps the parameters whole on every rank while it exists. Collective: all ranks construct and end it with
/// the same parameters.
/// Without a modifier_rank, a rank sees its own writes until the scope ends; then the old values return. A
/// warning names the first parameter of an engine whose writes are lost in this way.
/// With a modifier_rank, that rank (or all ranks) may write, and its values become those of all ranks at the
/// end. It may also give a parameter new memory of the same type and sizes, as torch::load() does. If another
/// rank writes a parameter that the modifier_rank does not, all ranks get an error at the end.
/// Scopes nest, but two open scopes with a modifier_rank must not share a parameter. Tensors made over a
/// parameter meanwhile (detach(), view()) keep the values that the parameter has at the end. Tensors that are
/// not partitioned are left alone.
class DEEPSPEED_API GatheredParameters {
 public:
  /// Opens the scope. modifier_rank: a rank within the group over which the parameters are partitioned.
  /// Throws UsageError if the group has no such rank. Throws UsageError if modifier_rank is given and another
  /// open GatheredParameters with a modifier_rank holds one of the parameters. Throws CommError and IoError.
  explicit GatheredParameters(const std::vector<at::Tensor>& params,
                              std::optional<int> modifier_rank = std::nullopt);
  /// Calls close(), unless an exception is unwinding. In that case the old values return, without
  /// communication.
  ~GatheredParameters() noexcept(false);
  GatheredParameters(const GatheredParameters&) = delete;
  GatheredParameters& operator=(const GatheredParameters&) = delete;

  /// Ends the scope early. A second call does nothing. Throws UsageError naming the parameter if its new
  /// memory has another type or other sizes. Throws UsageError on all ranks if a write is lost because the
  /// modifier_rank did not make it. Throws CommError.
  void close();
  /// Ends the scope early, as an exception would: drops what was written.
  void forget() noexcept { drop(/*forget_writes=*/modifier_rank_.has_value()); }

 private:
  /// Holds a parameter, and its memory at the start as a separate tensor.
  struct Gathered {
    at::Tensor param;
    at::Tensor memory;
    uint64_t before = 0;       // fingerprint of its values at the start, if several ranks may write
    bool is_replaced = false;  // it got other memory
    bool has_aliases = false;  // other tensors shared its memory at the start
  };

  /// Gives replaced parameters their own memory back. With a modifier_rank, copies the new values there.
  /// Throws UsageError for another type or sizes.
  void take_replaced();
  /// Returns whether the modifier_rank's values will be sent to other ranks.
  bool is_shared_write() const;
  /// Returns a character per entry of gathered_: '1' if this rank wrote it, otherwise '0'.
  std::string written_here() const;
  /// Describes a parameter that a rank wrote but the modifier_rank did not. Returns "" if there is none, and
  /// the same text on all ranks. Collective.
  std::string text_of_lost_writes() const;
  /// Gives replaced parameters their own memory back, without the new values.
  void forget_replaced() noexcept;
  /// Turns tensors made over the parameters during the scope into ordinary ones. They keep the present
  /// values.
  void leave_to_aliases() noexcept;
  void drop(bool forget_writes) noexcept;

  std::vector<std::shared_ptr<HoldableStorage>> held_;
  std::vector<Gathered> gathered_;  // one entry for each of held_
  std::optional<int> modifier_rank_;
  Unwinding unwinding_;
};

/// Turns partitioned parameters that no engine owns into ordinary tensors with all their values. No engine
/// owns parameters after their zero::Init has ended, after their engine was dropped, or after
/// destroy({.keep_partitioned = true}). The tensors keep their identity; tensors that are not partitioned are
/// left alone. Every rank gets the whole model and needs the memory for it. Collective.
/// Throws UsageError naming the parameter if an engine still owns it or it is in use. Throws UsageError while
/// a zero::Init is building the model, and if a rank has too little memory. Throws CommError and IoError;
/// some parameters are whole by then, and another call continues with the rest.
DEEPSPEED_API void make_whole(const std::vector<at::Tensor>& params);

}  // namespace deepspeed::zero
