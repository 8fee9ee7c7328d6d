#include "deepspeed/checkpoint/pickle/value.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::checkpoint {
namespace {

TEST(Dict, FindsAndReplacesAmongManyKeysOfEveryKind) {
  Dict dict;
  for (int64_t i = 0; i < 100; ++i) {
    dict.set(i, i);
    dict.set(std::to_string(i), -i);
  }
  dict.set(true, "flag");
  dict.items().emplace_back("late", 1);
  dict.items()[2].second = 77;  // of key 1
  dict.set("7", 70);
  dict.set(true, "other");
  EXPECT_EQ(dict.size(), 202U);
  EXPECT_EQ(dict.find(1)->as_int(), 77);
  EXPECT_EQ(dict.find(7)->as_int(), 7);
  EXPECT_EQ(dict.at("7").as_int(), 70);
  EXPECT_EQ(dict.at("99").as_int(), -99);
  EXPECT_EQ(dict.at("late").as_int(), 1);
  EXPECT_EQ(dict.items()[200].second.as_string(), "other");
  EXPECT_EQ(dict.find(100), nullptr);
  EXPECT_EQ(dict.find("100"), nullptr);
}

TEST(Dict, ForgetsKeysThatAreNoLongerThere) {
  Dict dict;
  for (int64_t i = 0; i < 100; ++i) dict.set(i, i);
  dict.items().erase(dict.items().begin());
  EXPECT_EQ(dict.find(int64_t{0}), nullptr);
  EXPECT_EQ(dict.find(50)->as_int(), 50);
  dict.set(50, 1);
  EXPECT_EQ(dict.find(50)->as_int(), 1);
  EXPECT_EQ(dict.size(), 99U);
}

TEST(Dict, KnowsKeysThatAreNoTextsAndNoWholeNumbers) {
  Dict dict;
  for (const Value& key : {Value(None{}), Value(0.5), Value(true)}) {
    dict.set(key, 1);
    dict.set(key, 2);
  }
  ASSERT_EQ(dict.size(), 3U);
  for (const auto& [key, value] : dict.items()) EXPECT_EQ(value.as_int(), 2) << key.kind();
}

TEST(Value, OfAnotherKindIsRefusedByName) {
  const Value text = "x", list = List{1};
  EXPECT_ERROR(CheckpointError, text.as_bool(), "bool", "str");
  EXPECT_ERROR(CheckpointError, text.as_int(), "whole number", "str");
  EXPECT_ERROR(CheckpointError, Value(0.5).as_int(), "whole number", "float");
  EXPECT_ERROR(CheckpointError, list.as_double(), "number", "list");
  EXPECT_ERROR(CheckpointError, list.as_string(), "text", "list");
  EXPECT_ERROR(CheckpointError, list.as_dict(), "dict", "list");
  EXPECT_ERROR(CheckpointError, text.as_tensor(), "tensor", "str");
  EXPECT_ERROR(CheckpointError, text.as_sequence(), "list", "str");
}

TEST(Value, MakesAnIntegerOfItsBytes) {
  EXPECT_EQ(Value::integer({}).as_int(), 0);
  EXPECT_EQ(Value::integer({0xFF}).as_int(), -1);
  EXPECT_EQ(Value::integer({0xFF, 0x00}).as_int(), 255);
  EXPECT_EQ(Value::integer({0x00, 0x80}).as_int(), -32768);
  EXPECT_EQ(Value::integer(std::vector<uint8_t>(20, 0xFF)).as_int(), -1);
  EXPECT_EQ(Value::integer({0, 0, 0, 0, 0, 0, 0, 0x80, 0xFF, 0xFF}).as_int(),
            std::numeric_limits<int64_t>::min());
  const Value beyond = Value::integer({0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0});
  EXPECT_EQ(beyond.get_if<BigInt>()->bytes, (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 0, 0x80, 0}));
}

/// Returns the shortest of several fillings, in processor time.
double filling_milliseconds(int64_t count) {
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    Dict dict;
    const std::clock_t begin = std::clock();
    for (int64_t i = 0; i < count; ++i) dict.set("h." + std::to_string(i) + ".attention.weight", i);
    best = std::min(best, 1e3 * double(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

TEST(Dict, IsFilledInATimeThatGrowsWithItsSize) {
  const double few = filling_milliseconds(2000), many = filling_milliseconds(16000);
  EXPECT_LT(many, 24 * few) << "8 times as many keys: " << few << " ms, " << many << " ms";
}

}  // namespace
}  // namespace deepspeed::checkpoint
