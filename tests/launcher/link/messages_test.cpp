// Messages arrive as they were sent, and wrong ones are refused by name.
#include "deepspeed/launcher/link/messages.h"

#include <set>
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
  const Hello hello{"1.0", "host", "host 1", "7 8", "::1", 3, "12", "0"};
  const Prepare prepare{1, 3, 1, "job", "world", 5, true, "10.0.0.1"};
  const Failed failed{"a text\nof \"two\" lines", 134, "details"};
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

TEST(Messages, AreReadOnlyAsTheirOwnKind) {
  EXPECT_FALSE(as<Stop>(to_json(Beat{})));
  EXPECT_FALSE(as<Stop>(Json{{"t", "unknown"}}));
  for (const Json& other : {Json(), Json::array(), Json("stop"), Json{{"t", 1}}, Json::object()}) {
    EXPECT_EQ(kind_of(other), "");
    EXPECT_FALSE(as<Stop>(other));
  }
}

/// Checks that a message without one of its fields, or with another type there, is refused by name.
template <Message Kind>
void expect_refusals(const Kind& whole, const std::set<std::string>& required) {
  const std::string name = "'" + std::string(Kind::kKind) + "'";
  const Json json = to_json(whole);
  for (const auto& [key, value] : json.items()) {
    if (key == "t") continue;
    const std::string field = "'" + key + "'";
    Json other = json;
    other.erase(key);
    if (required.contains(key)) {
      EXPECT_ERROR(MessageError, as<Kind>(other), name + " has no " + field);
    } else {
      EXPECT_TRUE(as<Kind>(other)) << name << field;
    }
    for (const char* wrong : {"null", "1.5", "1e99", "-9e18", "18446744073709551615", "[1]", "{\"t\":1}"}) {
      other[key] = Json::parse(wrong);
      EXPECT_ERROR(MessageError, as<Kind>(other), name + " has " + field, ", expected ");
    }
    other[key] = value.is_string() ? Json(1) : Json("?");
    EXPECT_ERROR(MessageError, as<Kind>(other), name + " has " + field, ", expected ");
    const size_t deep = 100000;
    other[key] = Json::parse(std::string(deep, '[') + std::string(deep, ']'));
    EXPECT_ERROR(MessageError, as<Kind>(other), name + " has " + field + " [...], expected ");
  }
}

TEST(Messages, RefuseFieldsThatAreMissingOrOfAnotherType) {
  expect_refusals(Challenge{"1"}, {"number"});
  expect_refusals(Proof{"1", "2"}, {"proof"});
  expect_refusals(DepositJob{"job"}, {"job"});
  expect_refusals(Hello{"1.0", "host", "host 1", "7 8", "::1", 3, "12", "1"}, {"version"});
  expect_refusals(Prepare{1, 3, 1, "job", "world", 5, true, "a"}, {"node", "world", "silence", "address"});
  expect_refusals(Planned{"Python 3", 7, true}, {});
  expect_refusals(Start{"a", 1, 2}, {"address", "port", "restarts"});
  expect_refusals(Out{{"bytes"}}, {"bytes"});
  expect_refusals(Ack{1}, {"bytes"});
  expect_refusals(Signal{2}, {"number"});
  expect_refusals(Stopped{"a text"}, {"text"});
  expect_refusals(Failed{"a text", 3, "details"}, {"text", "code"});
  expect_refusals(Ended{3}, {"code"});
}

TEST(Messages, RefuseNumbersOutsideOfTheirRangeAndTextsThatAreNoBase64) {
  for (const char* port : {"2147483648", "-2147483649"}) {
    const std::string text = R"({"t":"start","address":"a","restarts":0,"port":)" + std::string(port) + "}";
    EXPECT_ERROR(MessageError, as<Start>(Json::parse(text)),
                 "'start' has 'port' " + std::string(port) + ", expected a whole number");
  }
  EXPECT_ERROR(MessageError, as<Ack>(Json{{"t", "ack"}, {"bytes", -1}}), "a whole number of at least 0");
  EXPECT_ERROR(MessageError, as<Out>(Json{{"t", "out"}, {"bytes", "?"}}), "a text in base64");
}

TEST(Messages, ShowOnlyTheBeginningOfAWrongValue) {
  const Json shown = {{"t", "ended"}, {"code", std::string(1000, 'x')}};
  EXPECT_LT(testing::error_of<MessageError>([&] { as<Ended>(shown); }).size(), 200u);
}

TEST(Messages, RefuseKindsThatAreNotExpected) {
  EXPECT_NO_THROW((expect_one_of<Stop, Beat>(to_json(Beat{}))));
  EXPECT_ERROR(MessageError, (expect_one_of<Stop, Beat>(Json{{"t", "unknown"}})), "'unknown'");
  EXPECT_ERROR(MessageError, expect_one_of<Stop>(to_json(Ended{0})), "'ended' was not expected");
}

}  // namespace
}  // namespace deepspeed::launcher
