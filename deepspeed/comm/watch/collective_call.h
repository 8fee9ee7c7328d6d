// A call says what a rank calls, as far as all ranks of the group must agree on it. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "deepspeed/comm/group/held_values.h"
#include "deepspeed/comm/group/operation.h"

namespace deepspeed::comm {

struct CollectiveCall {
  const char* collective = "";  // "all_reduce"
  at::ScalarType dtype = at::kByte;
  int64_t numel = 0;         // elements of the tensor that has the same size on all ranks; 0: no tensor
  const char* op = "";       // "sum"; "" where nothing is reduced
  int root = -1;             // -1: none
  int64_t position = -1;     // where the caller is, e.g. its micro step; -1: not told
  std::string subject = {};  // what the call is about (call_subject.h); "": not told
  std::shared_ptr<const HeldValues> held = nullptr;  // what the caller holds; null: not told
  at::DeviceType device = at::kCPU;  // of the tensor: another backend takes those of another device

  uint64_t held_hash() const { return held ? held->hash : 0; }
};

/// Returns the part of a call that the arguments of its collective say.
CollectiveCall call_of(const Operation& operation);

/// Returns "all_reduce #42 (sum of 1024 Float, micro step 7)"; `number` counts the group's calls from 1.
std::string describe(const CollectiveCall& call, uint64_t number);

/// Continues the hash of a group's calls, `earlier` (0 before the first), with its call `number`: alike on
/// all machines where all calls so far are.
uint64_t extend_chain(uint64_t earlier, const CollectiveCall& call, uint64_t number);

/// Returns 20 bits of a chain.
uint32_t fingerprint(uint64_t chain);

}  // namespace deepspeed::comm
