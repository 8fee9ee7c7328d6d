// DeepSpeed's zero.GatheredParameters: partitioned parameters whole for a scope, to be read or changed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

class HoldableStorage;

/// While it lives the parameters are whole on every rank. Collective: all ranks make it with the same
/// parameters and end it. Without a modifier_rank writing them is an error; with one, that rank may write, or
/// all, and at the end its values become those of all ranks, also where it gave a parameter other memory of
/// the same type and sizes, as torch::load() does. Another rank that changes what the modifier_rank does not
/// gets an error at the end. Tensors that are not partitioned are left alone.
class GatheredParameters {
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
  /// where one got other memory whose values it cannot take, and, on this rank alone, where what it wrote is
  /// lost, as the modifier_rank did not write it.
  void close();

 private:
  /// A parameter, and its memory at the begin, as a tensor of its own.
  struct Gathered {
    at::Tensor param;
    at::Tensor memory;
    uint64_t fingerprint = 0;  // of its values at the begin, on ranks that are not the modifier_rank
  };

  /// Parameters that got other memory get their own back, with the values of the other.
  void take_replaced();
  bool is_modified_elsewhere() const;
  /// The modifier_rank's values become those of all. Returns the name of a parameter whose changes on this
  /// rank are lost with that; "" where there is none.
  std::string write_back();
  void drop(bool forget_writes) noexcept;

  std::vector<std::shared_ptr<HoldableStorage>> held_;
  std::vector<Gathered> gathered_;  // of each of them
  std::optional<int> modifier_rank_;
  int exceptions_ = 0;  // that were under way at its begin
};

}  // namespace deepspeed::zero
