#include "deepspeed/comm/rank_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::comm {
namespace {

using ::testing::HasSubstr;

GroupReport group(std::map<uint64_t, std::string> calls) {
  GroupReport report;
  report.name = "data";
  report.global_ranks = {0, 1};
  report.calls = std::move(calls);
  return report;
}

RankReport rank(int rank, std::map<std::string, GroupReport> groups) {
  RankReport report;
  report.rank = rank;
  report.groups = std::move(groups);
  return report;
}

TEST(RankReport, SurvivesJson) {
  auto first = group({{3, "all_reduce #3"}, {4, "barrier #4"}});
  first.waits_in = 4;
  first.is_blocked = true;
  auto second = group({});
  second.left = true;
  auto report = rank(7, {{"0/data", first}, {"1/data", second}});
  report.serial = 12;
  report.gave_up = "because";
  const auto copy = report_from_json(Json::parse(to_json(report).dump()));
  EXPECT_EQ(to_json(copy), to_json(report));
  EXPECT_EQ(copy.groups.at("0/data").calls.at(4), "barrier #4");
  EXPECT_EQ(copy.groups.at("0/data").waits_in, 4u);
  EXPECT_FALSE(copy.groups.at("1/data").waits_in);
  EXPECT_TRUE(copy.groups.at("1/data").left);
}

TEST(RankReport, FindsTheFirstCallThatDiffers) {
  const auto zero = rank(0, {{"0/data", group({{1, "a #1"}, {2, "b #2"}, {3, "c #3"}})}});
  const auto one = rank(1, {{"0/data", group({{2, "x #2"}, {3, "y #3"}})}});
  const auto text = find_divergence(zero, one);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("group 'data': rank 0 called b #2, rank 1 called x #2"));
  EXPECT_EQ(find_divergence(one, zero), text);
}

TEST(RankReport, FindsNothingWhereOneIsOnlyBehindOrInOtherGroups) {
  const auto zero = rank(0, {{"0/data", group({{1, "a #1"}, {2, "b #2"}})}, {"1/own", group({{1, "z #1"}})}});
  const auto one = rank(1, {{"0/data", group({{1, "a #1"}})}, {"2/own", group({{1, "y #1"}})}});
  EXPECT_FALSE(find_divergence(zero, one));
  EXPECT_FALSE(find_divergence(one, zero));
}

TEST(RankReport, FindsARankThatLeftBeforeACall) {
  auto left = group({{1, "a #1"}});
  left.left = true;
  const auto zero = rank(0, {{"0/data", group({{1, "a #1"}, {2, "b #2"}, {3, "c #3"}})}});
  const auto text = find_divergence(zero, rank(1, {{"0/data", left}}));
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("rank 0 called b #2, rank 1 left after a #1"));
  left.calls[2] = "b #2";
  left.calls[3] = "c #3";
  EXPECT_FALSE(find_divergence(zero, rank(1, {{"0/data", left}})));
}

TEST(RankReport, FindsRanksThatWaitForEachOtherInTwoGroups) {
  auto waiting = group({{5, "all_reduce #5"}});
  waiting.waits_in = 5;
  waiting.is_blocked = true;
  const auto before = group({{4, "all_reduce #4"}});
  auto other_waiting = group({{9, "barrier #9"}});
  other_waiting.name = "model";
  other_waiting.waits_in = 9;
  other_waiting.is_blocked = true;
  auto other_before = group({});
  const auto zero = rank(0, {{"0/data", waiting}, {"1/model", other_before}});
  auto one = rank(1, {{"0/data", before}, {"1/model", other_waiting}});
  const auto text = find_deadlock(zero, one);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("rank 0 waits in all_reduce #5 of group 'data', rank 1 waits in barrier #9 of "
                               "group 'model'"));
  one.groups["1/model"].is_blocked = false;  // still computing: it may come
  EXPECT_FALSE(find_deadlock(zero, one));
}

}  // namespace
}  // namespace deepspeed::comm
