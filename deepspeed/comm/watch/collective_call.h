// Describes a call by everything that all ranks of the group must agree on. Internal to this folder.
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
  const char* op = "";       // "sum"; "" if nothing is reduced
  int root = -1;             // -1: none
  int64_t position = -1;     // of the caller, e.g. its micro step; -1: unknown
  std::string subject = {};  // what the call is about (call_subject.h); "": unknown
  std::shared_ptr<const HeldValues> held = nullptr;  // values of the caller to be compared; null: none
  at::DeviceType device = at::kCPU;  // of the tensor; different devices have different backends

  uint64_t held_hash() const { return held ? held->hash : 0; }
};

/// Returns a call filled from the operation's arguments, without position, subject and held values.
CollectiveCall call_of(const Operation& operation);

/// Returns "all_reduce #42 (sum of 1024 Float, micro step 7)". `number` counts the group's calls from 1.
std::string describe(const CollectiveCall& call, uint64_t number);

/// Returns the hash of a group's calls after call `number`. `earlier` is that of the calls before (0 before
/// the first). The hash is the same on all machines if all calls are.
uint64_t extend_chain(uint64_t earlier, const CollectiveCall& call, uint64_t number);

/// Returns 20 bits of a hash of calls, for the tags of messages.
uint32_t fingerprint(uint64_t chain);

}  // namespace deepspeed::comm
