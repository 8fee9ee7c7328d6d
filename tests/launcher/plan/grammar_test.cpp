#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/plan/hostfile.h"
#include "deepspeed/launcher/plan/machine.h"
#include "deepspeed/launcher/plan/resource_filter.h"

#include "tests/support/error_of.h"

namespace deepspeed::launcher {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

const ResourcePool kPool = {{"worker-0", {0, 1, 2, 3}}, {"worker-1", {0, 1, 2, 3}}};

TEST(Hostfile, TakesHostsInOrderAndSkipsCommentsAndBlankLines) {
  const auto pool = parse_hostfile("# two machines\n\nb slots=2\n  \na   slots=1 # fast one\n", "hosts");
  EXPECT_EQ(pool, (ResourcePool{{"b", {0, 1}}, {"a", {0}}}));
}

TEST(Hostfile, NamesTheLineOfABadEntry) {
  for (const char* line : {"host", "host slots=", "host slots=x", "host slots=-1", "host gpus=2",
                           " host slots=2", "host slots=99999999999"}) {
    const std::string text =
        error_of<UsageError>([&] { parse_hostfile(std::string("a slots=1\n") + line, "hosts"); });
    EXPECT_THAT(text, HasSubstr("hosts line 2: bad entry")) << line;
  }
}

TEST(Hostfile, RefusesAHostThatIsListedTwice) {
  EXPECT_THAT(error_of<UsageError>([] { parse_hostfile("a slots=1\na slots=2\n", "hosts"); }),
              HasSubstr("multiple entries for host 'a'"));
}

TEST(Hostfile, RefusesHostsWithoutSlots) {
  EXPECT_ERROR(UsageError, parse_hostfile("a slots=1\nb slots=0\n", "hosts"),
               "hosts line 2: host 'b' has slots=0");
}

TEST(Hostfile, RefusesNamesThatNoMachineHas) {
  for (const char* host : {"-oProxyCommand=x", "$(x)", "one;two", "^hosts", "n[1-2]", "%h", "one,two", "a@",
                           "@b", "a@b@c", "h\xc3\xb6st"}) {
    EXPECT_ERROR(UsageError, parse_hostfile("a slots=1\n" + std::string(host) + " slots=1\n", "hosts"),
                 "hosts line 2: host '" + std::string(host) + "': expected a name or an address");
  }
  for (const char* host : {"worker-1", "10.0.0.1", "me@one.example.org", "fe80::1", "a_b"})
    EXPECT_EQ(parse_hostfile(std::string(host) + " slots=1\n", "hosts").front().host, host);
}

TEST(WorldInfo, IsReadAsDeepSpeedWritesIt) {
  const ResourcePool pool = {{"b", {0, 1}}, {"a", {3}}};
  EXPECT_EQ(encode_world_info(pool), "eyJiIjpbMCwxXSwiYSI6WzNdfQ==");
  EXPECT_EQ(decode_world_info(encode_world_info(pool)), pool);
  EXPECT_EQ(decode_world_info("eyJiIjogWzAsIDFdLCAiYSI6IFszXX0="), pool);  // with spaces, as Python's json
  for (const char* text : {"", "{}", "e30=", "WzFd", "eyJhIjoxfQ==", "eyJhIjpbLTFdfQ=="})
    EXPECT_ERROR(UsageError, decode_world_info(text), "--world_info is", "expected {host: [slots]}");
}

TEST(Hostfile, IsReadSoonWhateverItHolds) {
  // As many slots as would take all memory, and as many hosts as would take hours by comparing each with
  // each.
  std::string slots, hosts;
  for (int i = 0; i < 100000; ++i) slots += "h" + std::to_string(i) + " slots=65536\n";
  EXPECT_ERROR(UsageError, parse_hostfile(slots, "hosts"), "hosts line 17: more than 1048576 slots in all");
  for (int i = 0; i < 1 << 20; ++i) hosts += "h" + std::to_string(i) + " slots=1\n";
  EXPECT_EQ(parse_hostfile(hosts, "hosts").size(), size_t{1} << 20);
}

TEST(Hostfile, RefusesAFileWithoutHosts) {
  EXPECT_THAT(error_of<UsageError>([] { parse_hostfile("# nothing\n", "hosts"); }),
              HasSubstr("names no host"));
}

TEST(Hostfile, GivesNothingForAMissingFileAndThrowsForAnUnreadableOne) {
  EXPECT_FALSE(read_hostfile("/no/such/hostfile"));
  EXPECT_THAT(error_of<IoError>([] { read_hostfile("/tmp"); }), HasSubstr("/tmp"));
}

TEST(ResourceFilter, IncludesWhatTheTextNamesInThePoolsOrder) {
  const struct {
    const char* text;
    ResourcePool expected;
  } table[] = {
      {"worker-1", {{"worker-1", {0, 1, 2, 3}}}},
      {"worker-0@worker-1:0,2", {{"worker-0", {0, 1, 2, 3}}, {"worker-1", {0, 2}}}},
      {"worker-1:0@worker-0:1", {{"worker-0", {1}}, {"worker-1", {0}}}},
      {"worker-1:3,1,1", {{"worker-1", {1, 3}}}},
      {"worker-1:3@worker-1:0", {{"worker-1", {0, 3}}}},
      {"worker-1:3@worker-1", {{"worker-1", {0, 1, 2, 3}}}},
  };
  for (const auto& row : table) EXPECT_EQ(include_resources(kPool, row.text), row.expected) << row.text;
}

TEST(ResourceFilter, ExcludesHostsAndSlots) {
  const struct {
    const char* text;
    ResourcePool expected;
  } table[] = {
      {"worker-1", {{"worker-0", {0, 1, 2, 3}}}},
      {"worker-1:0", {{"worker-0", {0, 1, 2, 3}}, {"worker-1", {1, 2, 3}}}},
      {"worker-1:0,2@worker-0:3", {{"worker-0", {0, 1, 2}}, {"worker-1", {1, 3}}}},
      {"worker-0:0,1,2,3", {{"worker-1", {0, 1, 2, 3}}}},
  };
  for (const auto& row : table) EXPECT_EQ(exclude_resources(kPool, row.text), row.expected) << row.text;
}

TEST(ResourceFilter, NamesTheFlagAndWhatItDoesNotFind) {
  const auto include = [](const char* text) {
    return error_of<UsageError>([&] { include_resources(kPool, text); });
  };
  const auto exclude = [](const char* text) {
    return error_of<UsageError>([&] { exclude_resources(kPool, text); });
  };
  EXPECT_THAT(include("worker-7"), HasSubstr("--include: hostname 'worker-7' not found"));
  EXPECT_THAT(include("worker-0:1,7"),
              HasSubstr("--include: no slot 7 on host 'worker-0', which has 0,1,2,3"));
  EXPECT_THAT(exclude("worker-7:1"), HasSubstr("--exclude: hostname 'worker-7' not found"));
  EXPECT_THAT(exclude("worker-1:9"), HasSubstr("no slot 9 on host 'worker-1'"));
}

TEST(ResourceFilter, MayLeaveNothing) {
  EXPECT_EQ(exclude_resources(kPool, "worker-0@worker-1"), ResourcePool{});
  EXPECT_EQ(include_resources({{"empty", {}}}, "empty"), ResourcePool{});
}

TEST(ResourceFilter, RefusesTextOutsideTheGrammar) {
  for (const char* text : {"worker-0:", "worker-0:a", "worker-0:1,", "worker-0:-1", ":1", "@worker-0",
                           "worker-0@", "worker-0:1:2", "worker-0: 1", "worker-0:99999999999"}) {
    EXPECT_THAT(error_of<UsageError>([&] { include_resources(kPool, text); }),
                HasSubstr("expected NAME[:SLOT"))
        << text;
  }
}

TEST(CoreList, TakesCoresAndRanges) {
  EXPECT_THAT(parse_core_list("1,3-5"), ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(parse_core_list("7"), ElementsAre(7));
  EXPECT_THAT(parse_core_list("8-9,0"), ElementsAre(8, 9, 0));
}

TEST(CoreList, RefusesBadListsAndRepeatedCores) {
  for (const char* text : {"", "a", "1,", "3-1", "-1", "1-", "1-2-3", "1 ,2", "99999999"}) {
    EXPECT_THAT(error_of<UsageError>([&] { parse_core_list(text); }), HasSubstr("--bind_core_list")) << text;
  }
  EXPECT_THAT(error_of<UsageError>([] { parse_core_list("0-3,2"); }), HasSubstr("core 2"));
}

TEST(CoreList, SharesNeighboursEquallyAndLeavesTheRestOut) {
  EXPECT_THAT(share_cores({0, 1, 4, 5, 6}, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5)));
  EXPECT_THAT(error_of<UsageError>([] { share_cores({0, 1}, 3); }), HasSubstr("2 cores for 3 ranks"));
}

}  // namespace
}  // namespace deepspeed::launcher
