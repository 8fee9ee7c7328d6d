// Checks a request and answers it from the keys. The result names the keys that changed, so that the server
// can end waits for them.
#include "deepspeed/comm/store/store_table.h"

#include <charconv>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"

namespace deepspeed::comm {
namespace {

// Returns the number of texts of a call; -1: any, -2: any even number.
int num_texts(StoreCall call) {
  switch (call) {
    case StoreCall::kCount:
    case StoreCall::kList:
      return 0;
    case StoreCall::kGet:
    case StoreCall::kAdd:
    case StoreCall::kDelete:
    case StoreCall::kPop:
    case StoreCall::kLength:
      return 1;
    case StoreCall::kSet:
    case StoreCall::kAppend:
    case StoreCall::kPush:
      return 2;
    case StoreCall::kCompareSet:
      return 3;
    case StoreCall::kCheck:
    case StoreCall::kWait:
    case StoreCall::kMultiGet:
      return -1;
    case StoreCall::kMultiSet:
      return -2;
    case StoreCall::kJoin:
      break;
  }
  raise<CommError>("the store does not know the call ", static_cast<int>(call));
}

void check_texts(const StoreMessage& request) {
  const int expected = num_texts(request.call());
  const size_t given = request.texts.size();
  const bool fits = expected >= 0 ? given == static_cast<size_t>(expected) : expected == -1 || given % 2 == 0;
  if (!fits)
    raise<CommError>("a call ", static_cast<int>(request.kind), " of the store has ", given, " texts");
}

StoreMessage done_reply(int64_t number = 0, std::vector<std::string> texts = {}) {
  return store_reply(StoreAnswer::kDone, number, std::move(texts));
}

}  // namespace

bool StoreTable::has(const std::string& key) const { return values_.contains(key) || queues_.contains(key); }

const std::string* StoreTable::first_missing(const std::vector<std::string>& keys) const {
  for (const auto& key : keys) {
    if (!has(key)) return &key;
  }
  return nullptr;
}

// Follows c10d: an absent key counts as "". If the expected value differs, the actual one is returned.
StoreMessage StoreTable::compare_set(const StoreMessage& request, std::vector<std::string>& changed) {
  const auto& key = request.texts[0];
  const auto& before = request.texts[1];
  const auto found = values_.find(key);
  if (found == values_.end() ? !before.empty() : found->second != before)
    return done_reply(0, {found == values_.end() ? before : found->second});
  values_[key] = request.texts[2];
  changed.push_back(key);
  return done_reply(0, {request.texts[2]});
}

StoreMessage StoreTable::add(const StoreMessage& request) {
  const auto& key = request.texts[0];
  int64_t number = 0;
  if (const auto found = values_.find(key); found != values_.end()) {
    const auto& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size())
      return store_reply(StoreAnswer::kRefused, 0,
                         {message("the key '", key, "' holds ", text.size(), " bytes that are no number")});
  }
  if (__builtin_add_overflow(number, request.number, &number))
    return store_reply(StoreAnswer::kRefused, 0, {message("the number of the key '", key, "' overflows")});
  values_[key] = std::to_string(number);
  return done_reply(number);
}

std::string StoreTable::pop(const std::string& key) {
  const auto queue = queues_.find(key);
  std::string value = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
  return value;
}

StoreMessage StoreTable::list() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  return done_reply(0, std::move(keys));
}

StoreTable::Outcome StoreTable::answer(const StoreMessage& request) {
  check_texts(request);
  const auto& texts = request.texts;
  Outcome outcome;
  switch (request.call()) {
    case StoreCall::kSet:
      values_[texts[0]] = texts[1];
      outcome = {done_reply(), "", {texts[0]}};
      break;
    case StoreCall::kCompareSet:
      outcome.reply = compare_set(request, outcome.changed);
      break;
    case StoreCall::kAdd:
      outcome.reply = add(request);
      outcome.changed = texts;
      break;
    case StoreCall::kDelete:
      outcome.reply = done_reply(values_.erase(texts[0]) + queues_.erase(texts[0]) > 0);
      break;
    case StoreCall::kCheck:
      outcome.reply = done_reply(first_missing(texts) == nullptr);
      break;
    case StoreCall::kCount:
      outcome.reply = done_reply(static_cast<int64_t>(values_.size()));
      break;
    case StoreCall::kAppend:
      values_[texts[0]] += texts[1];
      outcome = {done_reply(), "", {texts[0]}};
      break;
    case StoreCall::kMultiSet:
      for (size_t i = 0; i < texts.size(); i += 2) {
        values_[texts[i]] = texts[i + 1];
        outcome.changed.push_back(texts[i]);
      }
      outcome.reply = done_reply();
      break;
    case StoreCall::kPush:
      queues_[texts[0]].push_back(texts[1]);
      outcome = {done_reply(), "", {texts[0]}};
      break;
    case StoreCall::kLength: {
      const auto queue = queues_.find(texts[0]);
      outcome.reply = done_reply(queue == queues_.end() ? 0 : static_cast<int64_t>(queue->second.size()));
      break;
    }
    case StoreCall::kList:
      outcome.reply = list();
      break;
    case StoreCall::kGet:
    case StoreCall::kMultiGet: {
      std::vector<std::string> found;
      for (const auto& key : texts) {
        const auto value = values_.find(key);
        if (value == values_.end()) return {std::nullopt, key, {}};
        found.push_back(value->second);
      }
      outcome.reply = done_reply(0, std::move(found));
      break;
    }
    case StoreCall::kWait:
      if (const auto* missing = first_missing(texts)) return {std::nullopt, *missing, {}};
      outcome.reply = done_reply();
      break;
    case StoreCall::kPop:
      if (queues_.contains(texts[0])) {
        outcome.reply = done_reply(0, {pop(texts[0])});
      } else if (request.limit_ms < 0) {
        outcome.reply = store_reply(StoreAnswer::kEmpty);
      } else {
        outcome.awaited = texts[0];
      }
      break;
    case StoreCall::kJoin:
      break;  // check_texts() has thrown
  }
  return outcome;
}

std::string JoinedRanks::why_not(int64_t rank, int64_t world_size) const {
  if (world_size != world_size_)
    return message("rank 0 that waits there has a world of ", world_size_, " ranks, expected ", world_size);
  if (rank >= world_size_) return message("there is no rank ", rank);
  if (are_all_there())
    return "the job that meets there has all its ranks; if it is another one, choose another MASTER_PORT";
  if (joined_.contains(static_cast<int>(rank))) return message("another process has joined as rank ", rank);
  return "";
}

}  // namespace deepspeed::comm
