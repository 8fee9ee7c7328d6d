#include "deepspeed/comm/watch/rank_report.h"

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
  first.thread = 2;
  auto second = group({});
  second.left = true;
  first.held = {{4, 99}};
  first.values = {{99, {{"lr", "0.1"}}}};
  auto report = rank(7, {{"0/data", first}, {"1/data", second}});
  report.serial = 12;
  report.gave_up["0/data"] = "because";
  const auto copy = report_from_json(Json::parse(to_json(report).dump()));
  EXPECT_EQ(to_json(copy), to_json(report));
  EXPECT_EQ(copy.groups.at("0/data").calls.at(4), "barrier #4");
  EXPECT_EQ(copy.groups.at("0/data").held, first.held);
  EXPECT_EQ(copy.groups.at("0/data").values, first.values);
  EXPECT_EQ(copy.groups.at("0/data").waits_in, 4u);
  EXPECT_FALSE(copy.groups.at("1/data").waits_in);
  EXPECT_EQ(copy.groups.at("0/data").thread, 2);
  EXPECT_TRUE(copy.groups.at("1/data").left);
}

TEST(RankReport, FindsTheFirstCallThatDiffers) {
  const auto zero = rank(0, {{"0/data", group({{1, "a #1"}, {2, "b #2"}, {3, "c #3"}})}});
  const auto one = rank(1, {{"0/data", group({{2, "x #2"}, {3, "y #3"}})}});
  const auto verdicts = find_divergences(zero, one);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].group, "0/data");
  EXPECT_THAT(verdicts[0].text, HasSubstr("group 'data': rank 0 called b #2, rank 1 called x #2"));
  EXPECT_EQ(find_divergences(one, zero).at(0).text, verdicts[0].text);
}

TEST(RankReport, FindsCallsThatAreTheSameOfCallersThatHoldOtherValues) {
  auto zero = rank(0, {{"0/data", group({{1, "a #1"}, {2, "b #2"}})}});
  auto one = rank(1, {{"0/data", group({{1, "a #1"}, {2, "b #2"}})}});
  zero.groups["0/data"].held = {{1, 5}, {2, 5}};
  one.groups["0/data"].held = {{1, 5}, {2, 7}};
  const auto unknown = find_divergences(one, zero);
  ASSERT_EQ(unknown.size(), 1u);
  EXPECT_THAT(unknown[0].text, HasSubstr("in b #2 what they hold is not the same"));
  zero.groups["0/data"].values[5] = {{"eps", "1"}, {"lr", "0.1"}};
  one.groups["0/data"].values[7] = {{"eps", "1"}, {"lr", "0.9"}, {"beta", "2"}};
  const auto known = find_divergences(zero, one);
  ASSERT_EQ(known.size(), 1u);
  EXPECT_THAT(known[0].text,
              HasSubstr("in b #2 lr is 0.1 on rank 0 and 0.9 on rank 1; beta is absent on rank 0 and 2"));
  EXPECT_EQ(find_divergences(one, zero).at(0).text, known[0].text);
}

TEST(RankReport, FindsNothingWhereOneIsOnlyBehindOrInOtherGroups) {
  const auto zero = rank(0, {{"0/data", group({{1, "a #1"}, {2, "b #2"}})}, {"1/own", group({{1, "z #1"}})}});
  const auto one = rank(1, {{"0/data", group({{1, "a #1"}})}, {"2/own", group({{1, "y #1"}})}});
  EXPECT_TRUE(find_divergences(zero, one).empty());
  EXPECT_TRUE(find_divergences(one, zero).empty());
}

TEST(RankReport, FindsARankThatLeftBeforeACall) {
  auto left = group({{1, "a #1"}});
  left.left = true;
  const auto zero = rank(0, {{"0/data", group({{1, "a #1"}, {2, "b #2"}, {3, "c #3"}})}});
  const auto verdicts = find_divergences(zero, rank(1, {{"0/data", left}}));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_THAT(verdicts[0].text, HasSubstr("rank 0 called b #2, rank 1 left after a #1"));
  left.calls[2] = "b #2";
  left.calls[3] = "c #3";
  EXPECT_TRUE(find_divergences(zero, rank(1, {{"0/data", left}})).empty());
}

GroupReport calls_of(int64_t thread, std::map<uint64_t, std::string> calls) {
  auto report = group(std::move(calls));
  report.thread = thread;
  return report;
}

GroupReport blocked(GroupReport report) {
  report.waits_in = report.last_call();
  report.is_blocked = true;
  return report;
}

TEST(RankReport, FindsRanksThatWaitForEachOtherInTwoGroups) {
  auto other_waiting = blocked(calls_of(1, {{9, "barrier #9"}}));
  other_waiting.name = "model";
  const auto zero =
      rank(0, {{"0/data", blocked(calls_of(1, {{5, "all_reduce #5"}}))}, {"1/model", calls_of(0, {})}});
  auto one = rank(1, {{"0/data", calls_of(1, {{4, "all_reduce #4"}})}, {"1/model", other_waiting}});
  const auto verdicts = find_deadlocks(zero, one);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].group, "0/data");
  EXPECT_THAT(verdicts[0].text,
              HasSubstr("rank 0 waits in all_reduce #5 of group 'data', rank 1 waits in barrier #9 of "
                        "group 'model'"));
  EXPECT_EQ(find_deadlocks(one, zero).at(0).group, "1/model");
  auto ending = zero;
  ending.groups["1/model"].left = true;  // which is a divergence
  EXPECT_TRUE(find_deadlocks(ending, one).empty());
  EXPECT_TRUE(find_deadlocks(one, ending).empty());
  one.groups["1/model"].is_blocked = false;  // still computing: it may come
  EXPECT_TRUE(find_deadlocks(zero, one).empty());
}

// If each group has its own thread, the awaited one is still coming.
TEST(RankReport, FindsNoDeadlockBetweenThreads) {
  const auto zero =
      rank(0, {{"0/data", blocked(calls_of(1, {{5, "a #5"}}))}, {"1/model", calls_of(2, {{8, "b #8"}})}});
  auto one =
      rank(1, {{"0/data", calls_of(1, {{4, "a #4"}})}, {"1/model", blocked(calls_of(2, {{9, "b #9"}}))}});
  EXPECT_TRUE(find_deadlocks(zero, one).empty());
  one.groups["0/data"].thread = kSeveralThreads;
  EXPECT_TRUE(find_deadlocks(zero, one).empty());
}

TEST(RankReport, FindsWhatAThreadGaveUpInTheGroupsThatItCallsAlone) {
  auto zero = rank(
      0, {{"0/data", blocked(calls_of(1, {{5, "a #5"}}))}, {"1/model", blocked(calls_of(2, {{9, "b #9"}}))}});
  auto one = rank(1, {{"0/data", calls_of(1, {{4, "a #4"}})},
                      {"1/model", calls_of(2, {{8, "b #8"}})},
                      {"2/own", calls_of(2, {{1, "c #1"}})}});
  one.gave_up["2/own"] = "because";
  const auto verdicts = find_given_up(zero, one);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].group, "1/model");
  EXPECT_EQ(verdicts[0].text, "because");
  zero.groups["1/model"].waits_in.reset();
  EXPECT_TRUE(find_given_up(zero, one).empty());
  EXPECT_EQ(find_given_up(zero, one, /*with_idle=*/true).at(0).group, "1/model");
  one.groups["2/own"].left = true;  // and continues without it
  EXPECT_TRUE(find_given_up(zero, one).empty());
  one.gave_up["0/data"] = "since";
  EXPECT_EQ(find_given_up(zero, one).at(0).text, "since");
}

}  // namespace
}  // namespace deepspeed::comm
