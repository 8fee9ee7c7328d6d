#include "deepspeed/comm/watch/collective_call.h"

#include <set>

#include <gtest/gtest.h>

namespace deepspeed::comm {
namespace {

CollectiveCall reduction() {
  return {
      .collective = "all_reduce", .dtype = at::kFloat, .numel = 8, .op = "sum", .root = -1, .position = 3};
}

TEST(CollectiveCall, EveryPartOfItChangesTheChain) {
  auto other_name = reduction(), other_type = reduction(), other_size = reduction(), other_op = reduction(),
       other_root = reduction(), other_position = reduction();
  other_name.collective = "reduce_scatter";
  other_type.dtype = at::kInt;
  other_size.numel = 9;
  other_op.op = "max";
  other_root.root = 0;
  other_position.position = 4;
  std::set<uint64_t> chains{extend_chain(0, reduction(), 1), extend_chain(0, reduction(), 2)};
  std::set<uint32_t> fingerprints;
  for (const auto& call : {other_name, other_type, other_size, other_op, other_root, other_position}) {
    chains.insert(extend_chain(0, call, 1));
  }
  EXPECT_EQ(chains.size(), 8u);
  for (const auto chain : chains) fingerprints.insert(fingerprint(chain));
  EXPECT_EQ(fingerprints.size(), 8u);
  EXPECT_LT(*fingerprints.rbegin(), 1u << 20);
  EXPECT_EQ(extend_chain(0, reduction(), 1), extend_chain(0, reduction(), 1));
}

TEST(CollectiveCall, KeepsAnEarlierDifferenceInTheChain) {
  auto other = reduction();
  other.numel = 9;
  uint64_t chain = extend_chain(0, reduction(), 1), other_chain = extend_chain(0, other, 1);
  for (uint64_t number = 2; number < 1000; ++number) {
    chain = extend_chain(chain, reduction(), number);
    other_chain = extend_chain(other_chain, reduction(), number);
    EXPECT_NE(chain, other_chain);
  }
}

}  // namespace
}  // namespace deepspeed::comm
