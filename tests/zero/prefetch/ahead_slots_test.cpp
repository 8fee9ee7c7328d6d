#include "deepspeed/zero/prefetch/ahead_slots.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Item = AheadSlots::Item;
using Kind = AheadSlots::Kind;

AheadSlots slots_of(const std::vector<Item>& items) {
  AheadSlots slots;
  slots.reset(items.size());
  for (size_t slot = 0; slot < items.size(); ++slot) slots.set(slot, items[slot]);
  return slots;
}

/// Makes the choice by looking at all slots one after the other.
std::vector<size_t> slow_choice(const std::vector<Item>& items, int64_t room, bool is_sequential) {
  std::vector<size_t> wanted;
  int64_t there = 0, missing = 0;
  for (size_t slot = 0; slot < items.size(); ++slot) {
    const Item& item = items[slot];
    if (item.kind == Kind::kNothing) continue;
    if (is_sequential && item.kind == Kind::kGathering) return {};
    if (item.kind != Kind::kMissing) {
      there += item.numel;
      continue;
    }
    if (missing + item.numel > room || (!wanted.empty() && items[wanted.front()].type != item.type)) break;
    missing += item.numel;
    wanted.push_back(slot);
    if (is_sequential) break;
  }
  if (!is_sequential && missing < there) wanted.clear();
  return wanted;
}

std::vector<size_t> slow_missing(const std::vector<Item>& items) {
  std::vector<size_t> slots;
  for (size_t slot = 0; slot < items.size(); ++slot) {
    if (items[slot].kind == Kind::kMissing) slots.push_back(slot);
  }
  return slots;
}

TEST(AheadSlots, GatherWhatIsMissingOnceItIsAsMuchAsWhatIsThere) {
  AheadSlots slots = slots_of({{Kind::kWhole, 20}, {Kind::kMissing, 10}, {Kind::kMissing, 5}});
  EXPECT_THAT(slots.to_gather(100), IsEmpty());
  slots.set(0, {});
  EXPECT_THAT(slots.to_gather(100), ElementsAre(1, 2));
  EXPECT_THAT(slots.to_gather(14), ElementsAre(1));
  EXPECT_THAT(slots.to_gather(9), IsEmpty());
  EXPECT_THAT(slots.to_gather(-3), IsEmpty());
  slots.set(2, {Kind::kMissing, 5, 1});
  EXPECT_THAT(slots.to_gather(100), ElementsAre(1));
}

TEST(AheadSlots, GatherOneAfterTheOther) {
  AheadSlots slots = slots_of({{Kind::kWhole, 20}, {Kind::kGathering, 10}, {Kind::kMissing, 5}});
  EXPECT_THAT(slots.next_to_gather(100), IsEmpty());
  slots.set(1, {Kind::kWhole, 10});
  EXPECT_THAT(slots.next_to_gather(100), ElementsAre(2));
  EXPECT_THAT(slots.next_to_gather(4), IsEmpty());
}

TEST(AheadSlots, ChooseAsALookAtAllOfThemDoes) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Item> items(random() % 40);
    AheadSlots slots = slots_of(items);
    const uint32_t num_types = 1 + random() % 3;
    for (int change = 0; change < 60 && !items.empty(); ++change) {
      const size_t slot = random() % items.size();
      items[slot] = {static_cast<Kind>(random() % 4), 1 + int64_t(random() % 30), int(random() % num_types)};
      if (items[slot].kind == Kind::kNothing) items[slot] = {};
      slots.set(slot, items[slot]);
      for (const int64_t room : {-5, 0, 7, 60, 100000}) {
        ASSERT_EQ(slots.to_gather(room), slow_choice(items, room, false));
        ASSERT_EQ(slots.next_to_gather(room), slow_choice(items, room, true));
      }
      std::vector<size_t> missing;
      for (size_t next = slots.first_missing(); next < items.size(); next = slots.first_missing(next + 1))
        missing.push_back(next);
      ASSERT_EQ(missing, slow_missing(items));
    }
  }
}

}  // namespace
}  // namespace deepspeed::zero
