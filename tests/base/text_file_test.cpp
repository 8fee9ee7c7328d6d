#include "deepspeed/base/text_file.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

TEST(TextFile, IsReadWhole) {
  const testing::TemporaryFolder folder;
  const std::string text = std::string(200'000, 'a') + "\nb";
  EXPECT_EQ(read_text_file(folder.write("a.txt", text), text.size()), text);
  EXPECT_EQ(read_text_file(folder.write("empty", ""), 0), "");
  EXPECT_ERROR(IoError, read_text_file(folder / "a.txt", text.size() - 1), (folder / "a.txt").string(),
               "more than 200001 bytes");
  EXPECT_ERROR(IoError, read_text_file(folder / "none", 9, "JSON file"), "cannot open ", "none",
               "No such file", "expected a readable JSON file");
}

// A reader of a FIFO waits for a writer that never comes.
TEST(TextFile, IsNoFifoSocketDeviceOrFolder) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_ERROR(IoError, read_text_file(folder / "fifo", 9), "fifo is a FIFO, expected a regular file");
  EXPECT_ERROR(IoError, read_text_file(folder.path(), 9), "is a folder, expected a regular file");
  EXPECT_ERROR(IoError, read_text_file("/dev/zero", 9), "/dev/zero is a device, expected a regular file");
  const int handle = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder / "socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(handle, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_ERROR(IoError, read_text_file(folder / "socket", 9), "socket", "expected a regular file");
  ::close(handle);
}

TEST(TextFile, SaysWhatLimitsTheOpenFiles) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::string error = testing::error_of<IoError>([] { read_text_file("/proc/self/stat", 9); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(error.find("Too many open files; this process may have 0 files open: raise the limit, for "
                       "example by: ulimit -n"),
            std::string::npos)
      << error;
}

TEST(OpenFiles, HaveRoomOrTheErrorNamesTheLimit) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_NO_THROW(require_open_files(10, "the group"));
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  EXPECT_EQ(now.rlim_cur, 64u);
  EXPECT_NO_THROW(require_open_files(100, "the group"));
  ::getrlimit(RLIMIT_NOFILE, &now);
  EXPECT_EQ(now.rlim_cur, 164u) << "the soft limit is raised";
  ::setrlimit(RLIMIT_NOFILE, &few);
  EXPECT_ERROR(IoError, require_open_files(uint64_t{1} << 40, "the group"),
               "the group needs room for 1099511627776", "may have 64 open", "ulimit -n");
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Text, KeepsWhatIsUtf8AndMarksTheRest) {
  EXPECT_EQ(as_utf8("a\u00e4\u20ac\U0001F600"), "a\u00e4\u20ac\U0001F600");
  EXPECT_EQ(as_utf8("a\xff"
                    "b\xc3"),
            "a?b?");
  EXPECT_EQ(as_utf8("\xc0\x80 \xed\xa0\x80"), "?? ???");
  EXPECT_TRUE(is_utf8("\u20ac"));
  EXPECT_FALSE(is_utf8("\xe2\x82"));
}

}  // namespace
}  // namespace deepspeed
