#include "deepspeed/base/text.h"

#include <string>

#include <gtest/gtest.h>

namespace deepspeed {
namespace {

TEST(Base64, DecodesWhatTheStandardGives) {
  for (const auto& [text, bytes] :
       std::initializer_list<std::pair<const char*, const char*>>{{"", ""},
                                                                  {"Zg==", "f"},
                                                                  {"Zm8=", "fo"},
                                                                  {"Zm9v", "foo"},
                                                                  {"Zm9vYg==", "foob"},
                                                                  {"Zm9vYmE=", "fooba"}}) {
    EXPECT_EQ(decode_base64(text), bytes) << text;
  }
  EXPECT_EQ(decode_base64("_-8"), "\xff\xef");
  for (const char* text : {"Z", "Zm9vY", "Zg=", "Zg===", "Z===", "Zm 9", "Zm9v\n", "=", "===="})
    EXPECT_FALSE(decode_base64(text)) << text;
}

TEST(Base64, EncodesWhatItDecodes) {
  std::string bytes;
  for (int length = 0; length < 300; ++length) {
    const std::string text = encode_base64(bytes);
    EXPECT_EQ(text.size() % 4, 0u);
    EXPECT_EQ(decode_base64(text), bytes);
    bytes.push_back(static_cast<char>(length * 37));
  }
  EXPECT_EQ(encode_base64("\xff\xef"), "_-8=");
}

}  // namespace
}  // namespace deepspeed
