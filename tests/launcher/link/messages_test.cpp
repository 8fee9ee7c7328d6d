// Messages arrive as they were sent, and wrong ones are refused by name.
#include "deepspeed/launcher/link/messages.h"

#include <climits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace deepspeed::launcher {
namespace {

/// Sends a message through its line, and returns the line that it makes then.
template <Message Kind>
Json sent_twice(const Kind& message) {
  const auto arrived = as<Kind>(Json::parse(to_json(message).dump()));
  return arrived ? to_json(*arrived) : Json();
}

TEST(Messages, ArriveAsTheyWereSent) {
  const Hello hello{"1.0", "host", "host 1", "7 8", "::1", 3, 0, "12", "0"};
  const Prepare prepare{1, 3, 1, "job", "world", 5, true, "10.0.0.1"};
  const Failed failed{2, 134, "a text\nof \"two\" lines", "details"};
  EXPECT_EQ(sent_twice(hello), to_json(hello));
  EXPECT_EQ(sent_twice(prepare), to_json(prepare));
  EXPECT_EQ(sent_twice(failed), to_json(failed));
  EXPECT_EQ(to_json(prepare).size(), 9u) << "all fields and the kind";
  const std::string bytes("\0\xff\n{", 4);
  EXPECT_EQ(as<Out>(Json::parse(to_json(Out{{bytes}}).dump())).value().bytes.raw, bytes);
  EXPECT_EQ(as<Ack>(to_json(Ack{size_t{5} << 32})).value().bytes, size_t{5} << 32);
  EXPECT_TRUE(as<Beat>(to_json(Beat{})));
}

TEST(Messages, LeaveOutWhatIsNotSet) {
  EXPECT_EQ(to_json(Planned{}).dump(), R"({"t":"planned"})");
  EXPECT_EQ(to_json(Planned{"", 0, false}).dump(), R"({"t":"planned","port":0})");
  const auto planned = as<Planned>(Json{{"t", "planned"}}).value();
  EXPECT_EQ(planned.python, "");
  EXPECT_FALSE(planned.port);
}

TEST(Messages, AreNothingWhereAnotherKindIsExpected) {
  EXPECT_FALSE(as<Stop>(to_json(Beat{})));
  EXPECT_FALSE(as<Stop>(Json{{"t", "unknown"}}));
  for (const Json& other : {Json(), Json::array(), Json("stop"), Json{{"t", 1}}, Json::object()}) {
    EXPECT_EQ(kind_of(other), "");
    EXPECT_FALSE(as<Stop>(other));
  }
}

TEST(Messages, AreRefusedByNameWhereAFieldIsMissingOrOfAnotherType) {
  const auto refuse = [](const char* text) { as<Start>(Json::parse(text)); };
  EXPECT_ERROR(MessageError, refuse(R"({"t":"start","address":"a","restarts":0})"), "'start' has no 'port'");
  EXPECT_ERROR(MessageError, refuse(R"({"t":"start","address":["b"],"port":1,"restarts":0})"),
               R"('start' has 'address' ["b"], expected a text)");
  for (const char* port :
       {"1e99", "1.5", "2147483648", "-2147483649", "18446744073709551615", "\"7\"", "null"}) {
    const std::string text = R"({"t":"start","address":"a","restarts":0,"port":)" + std::string(port) + "}";
    EXPECT_ERROR(MessageError, refuse(text.c_str()), "has 'port' ", ", expected a whole number");
  }
  EXPECT_ERROR(MessageError, as<Ack>(Json{{"t", "ack"}, {"bytes", -1}}), "a whole number of at least 0");
  EXPECT_ERROR(MessageError, as<Out>(Json{{"t", "out"}, {"bytes", "?"}}), "a text in base64");
  EXPECT_ERROR(MessageError, as<Planned>(Json{{"t", "planned"}, {"port", "7"}}),
               "'planned' has 'port' \"7\"");
  Json prepare = to_json(Prepare{});
  prepare["first"] = 1;
  EXPECT_ERROR(MessageError, as<Prepare>(prepare), "'prepare' has 'first' 1, expected true or false");
  EXPECT_ERROR(MessageError, as<Stopped>(Json{{"t", "stopped"}, {"rank", 0}, {"text", INT_MAX}}), "'text'");
  const Json shown = {{"t", "ended"}, {"code", std::string(1000, 'x')}};
  EXPECT_LT(testing::error_of<MessageError>([&] { as<Ended>(shown); }).size(), 200u);
}

}  // namespace
}  // namespace deepspeed::launcher
