#include "deepspeed/device/memory/library_pages.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace deepspeed::device {
namespace {

constexpr size_t kPage = size_t{64} << 10;  // a multiple of every system's

/// Kilobytes of files that this process has mapped and in memory.
int64_t mapped_of_files() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssFile:", 0) == 0) return std::stoll(line.substr(8));
  }
  return -1;
}

alignas(kPage) const volatile char constants[6 * kPage] = {"constants of this program"};

TEST(LibraryPages, AreMappedAgainAsTheyAreUsed) {
  if (!std::ifstream("/proc/self/pagemap")) GTEST_SKIP() << "the system does not say what is mapped";
  const int64_t before = mapped_of_files();
  const int64_t released = release_library_pages();
  const int64_t after = mapped_of_files();
  EXPECT_GT(released, 4 << 20);
  EXPECT_LT(after, before - released / 1024 / 2);
  EXPECT_EQ(constants[0], 'c');
  EXPECT_EQ(constants[kPage], '\0');
  EXPECT_GT(release_library_pages(), 0);  // what was used meanwhile
}

TEST(LibraryPages, OfAForkedProcessAreThoseThatItUses) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(release_library_pages() == 0 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// As a debugger's breakpoint, or code that a tool has patched.
TEST(LibraryPages, ThatDifferFromTheirFileAreLeftAlone) {
  char* const page = const_cast<char*>(&constants[4 * kPage]);
  ASSERT_EQ(::mprotect(page, kPage, PROT_READ | PROT_WRITE), 0);
  std::strcpy(page, "patched");
  ASSERT_EQ(::mprotect(page, kPage, PROT_READ), 0);
  release_library_pages();
  EXPECT_STREQ(page, "patched");
}

}  // namespace
}  // namespace deepspeed::device
