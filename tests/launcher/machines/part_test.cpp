// What the launcher makes of the words of other machines, whatever they say.
#include "deepspeed/launcher/machines/part.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/version.h"

namespace deepspeed::launcher {
namespace {

using ::testing::HasSubstr;

std::vector<Part> planned(const std::vector<std::string>& pythons) {
  std::vector<Part> parts(pythons.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].host = "host" + std::to_string(i);
    parts[i].plan.python = pythons[i];
    parts[i].stage = Stage::kPlanned;
  }
  return parts;
}

TEST(Part, NamesAHostWithAnotherPython) {
  EXPECT_EQ(plan_fault(planned({"Python 3.11.7", "Python 3.11.7"})), "");
  EXPECT_EQ(plan_fault(planned({"", ""})), "");
  EXPECT_THAT(
      plan_fault(planned({"Python 3.11.7", "Python 3.9.1"})),
      HasSubstr("host host1: the program runs by 'Python 3.9.1' there, on host host0 by 'Python 3.11.7'"));
  auto parts = planned({"Python 3.11.7", "Python 3.9.1"});
  parts[1].stage = Stage::kEnded;  // it takes no part
  EXPECT_EQ(plan_fault(parts), "");
}

TEST(Part, NamesTheHostWithoutGpusIfOthersHaveSome) {
  auto parts = planned({"", "", ""});
  EXPECT_EQ(plan_fault(parts), "");
  parts[2].plan.has_gpus = true;
  EXPECT_THAT(plan_fault(parts),
              HasSubstr("host host0 has no GPU, host host2 has; leave hosts out (--exclude)"));
  parts[0].plan.has_gpus = true;
  EXPECT_THAT(plan_fault(parts),
              HasSubstr("host host1 has no GPU, host host0 has; leave hosts out (--exclude)"));
  parts[1].plan.has_gpus = true;
  EXPECT_EQ(plan_fault(parts), "");
}

TEST(Part, NamesAHostWithAnotherLibrary) {
  Part part;
  part.host = "one";
  part.hello.version = version();
  EXPECT_EQ(version_fault(part, "/bin/ds_node"), "");
  part.hello.version = "0.0.1";
  EXPECT_THAT(version_fault(part, "/bin/ds_node"), HasSubstr("host one: the library there is version 0.0.1"));
}

}  // namespace
}  // namespace deepspeed::launcher
