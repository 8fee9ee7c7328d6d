// Parameters that stage 3 has partitioned, as ordinary tensors again.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Whether `tensor` is a partitioned parameter whose engine is gone without having made it whole.
bool is_abandoned(const at::Tensor& tensor);

/// Throws UsageError, naming the parameter, where one of them is partitioned and an operator or a
/// GatheredParameters has it. Talks to no rank.
void check_unused(const std::vector<at::Tensor>& params);

/// Makes ordinary tensors, with all their values, of the parameters among `params` that are partitioned and
/// that no engine has: those of a zero::Init that has ended, and those of an engine that was dropped, or
/// ended by destroy({.keep_partitioned = true}). They keep their identity; others are left alone. Every rank
/// gets the whole model and needs the memory for it. Collective. Throws UsageError, naming the parameter,
/// where an engine has it still or somebody uses it, and where a rank has too little memory; CommError,
/// IoError: then some are whole already, and a further call goes on with the others.
void make_whole(const std::vector<at::Tensor>& params);

}  // namespace deepspeed::zero
