#include "text_data.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "deepspeed/base/error.h"

namespace examples {
namespace fs = std::filesystem;
using deepspeed::IoError;
using deepspeed::raise;
using deepspeed::UsageError;

namespace {

constexpr int64_t kHeldOutShare = 10;  // the last one in so many tokens is held out

}  // namespace

std::string read_text(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) raise<IoError>("there is no file ", file.string());
  if (!fs::is_regular_file(file, error)) raise<IoError>(file.string(), " is not a file");
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  // An empty file sets the fail bit of `text` only.
  if (!stream) raise<IoError>(file.string(), " cannot be read");
  if (text.view().empty()) raise<IoError>(file.string(), " is empty, expected text to train on");
  return std::move(text).str();
}

std::string read_default_text(const fs::path& folder) {
  std::error_code error;
  std::set<fs::path> files;  // in name order; links of one file are one path
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_regular_file(error)) files.insert(fs::canonical(entry.path()));
  }
  std::string text;
  for (const auto& file : files) text += read_text(file);
  if (text.empty()) {
    raise<IoError>("there are no texts in ", folder.string(), "; name a text with --data FILE");
  }
  return text;
}

Vocabulary Vocabulary::of(const std::string& text) {
  const std::set<uint8_t> bytes(text.begin(), text.end());
  return Vocabulary({bytes.begin(), bytes.end()});
}

Vocabulary Vocabulary::of_all_bytes() {
  std::vector<uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return Vocabulary(std::move(bytes));
}

Vocabulary::Vocabulary(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {
  if (bytes_.empty()) raise<UsageError>("the vocabulary is empty");
  token_of_.fill(-1);
  for (size_t token = 0; token < bytes_.size(); ++token) {
    auto& place = token_of_[bytes_[token]];
    if (place >= 0) raise<UsageError>("byte ", int{bytes_[token]}, " stands twice");
    place = static_cast<int16_t>(token);
  }
}

at::Tensor Vocabulary::encode(const std::string& text) const {
  auto tokens = at::empty({static_cast<int64_t>(text.size())}, at::kLong);
  auto* out = tokens.mutable_data_ptr<int64_t>();
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (token_of_[byte] < 0) {
      raise<UsageError>("byte ", int{byte}, " does not occur in the text that the model was trained on");
    }
    *out++ = token_of_[byte];
  }
  return tokens;
}

std::string Vocabulary::decode(const at::Tensor& tokens) const {
  const auto flat = tokens.to(at::kCPU, at::kLong).contiguous();
  const auto* token = flat.const_data_ptr<int64_t>();
  std::string text;
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (token[i] < 0 || token[i] >= size()) {
      raise<UsageError>("token ", token[i], " is outside 0 to ", size() - 1);
    }
    text.push_back(static_cast<char>(bytes_[static_cast<size_t>(token[i])]));
  }
  return text;
}

TextWindows::TextWindows(at::Tensor tokens, int64_t context, int64_t stride)
    : tokens_(std::move(tokens)), context_(context), stride_(stride) {
  if (context < 1 || stride < 1) {
    raise<UsageError>("context is ", context, " and stride ", stride, ", expected at least 1");
  }
  // A window needs one token more than it has inputs: the target of its last.
  const int64_t starts = tokens_.numel() - context;
  if (starts < 1) {
    raise<UsageError>("the text has ", tokens_.numel(), " characters, expected at least ", context + 1);
  }
  num_windows_ = (starts + stride - 1) / stride;
}

TokenBatch TextWindows::get(size_t index) {
  const int64_t start = static_cast<int64_t>(index) * stride_;
  return {tokens_.narrow(0, start, context_), tokens_.narrow(0, start + 1, context_)};
}

TokenData make_token_data(const at::Tensor& tokens, int64_t context) {
  const int64_t length = tokens.numel();
  const int64_t held_out = length / kHeldOutShare;
  if (held_out <= context) {
    raise<UsageError>("the text has ", length, " characters, expected at least ",
                      (context + 1) * kHeldOutShare, " for a context of ", context,
                      " (the last tenth is held out); take a longer text or a smaller --context");
  }
  return {TextWindows(tokens.narrow(0, 0, length - held_out), context, 1),
          TextWindows(tokens.narrow(0, length - held_out, held_out), context, context)};
}

TextData make_text_data(const std::string& text, int64_t context) {
  auto vocabulary = Vocabulary::of(text);
  auto data = make_token_data(vocabulary.encode(text), context);
  return {std::move(vocabulary), std::move(data.train), std::move(data.held_out)};
}

TokenBatch stack(const std::vector<TokenBatch>& examples) {
  std::vector<at::Tensor> tokens, targets;
  for (const auto& example : examples) {
    tokens.push_back(example.tokens);
    targets.push_back(example.targets);
  }
  return {at::stack(tokens), at::stack(targets)};
}

}  // namespace examples
