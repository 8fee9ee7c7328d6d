// Text as training data: a vocabulary of the bytes that a text has, its tokens, and windows of them as a data
// set.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/data/datasets/base.h>

namespace examples {

/// Reads the text of one file. Throws deepspeed::IoError where it is absent, no file, unreadable or empty.
std::string read_text(const std::filesystem::path& file);

/// Reads the texts that lie on every Debian machine (/usr/share/common-licenses), in the order of their
/// names, each once however many links lead to it. Throws deepspeed::IoError where there are none.
std::string read_default_text(const std::filesystem::path& folder = "/usr/share/common-licenses");

/// A vocabulary of one token a byte value; tokens are numbered in the order of the byte values.
class Vocabulary {
 public:
  /// Makes the vocabulary of the bytes that occur in `text`.
  static Vocabulary of(const std::string& text);
  /// Makes the vocabulary of all bytes, where a byte's value is its token.
  static Vocabulary of_all_bytes();
  /// Makes it from the bytes in token order. Throws deepspeed::UsageError for none or a repeated one.
  explicit Vocabulary(std::vector<uint8_t> bytes);

  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

  /// Returns the tokens of a text, (its length) int64. Throws deepspeed::UsageError for a byte without a
  /// token.
  at::Tensor encode(const std::string& text) const;
  std::string decode(const at::Tensor& tokens) const;
  friend bool operator==(const Vocabulary&, const Vocabulary&) = default;

 private:
  std::vector<uint8_t> bytes_;
  std::array<int16_t, 256> token_of_{};  // -1: no token
};

/// A window, where tokens[i + 1] == targets[i]: (T) each as an example, (B, T) as a batch; int64.
struct TokenBatch {
  at::Tensor tokens;
  at::Tensor targets;
};

/// Windows of `context` tokens that start every `stride` tokens of one text.
class TextWindows : public torch::data::datasets::Dataset<TextWindows, TokenBatch> {
 public:
  /// tokens: (N) int64 with N > context. Throws deepspeed::UsageError for fewer.
  TextWindows(at::Tensor tokens, int64_t context, int64_t stride);

  TokenBatch get(size_t index) override;
  c10::optional<size_t> size() const override { return static_cast<size_t>(num_windows_); }

 private:
  at::Tensor tokens_;
  int64_t context_;
  int64_t stride_;
  int64_t num_windows_;
};

/// Tokens cut in two: windows at every position to train on, and the last tenth, in windows side by side,
/// held out.
struct TokenData {
  TextWindows train;
  TextWindows held_out;
};

/// Cuts tokens, (N) int64. Throws deepspeed::UsageError, with the length that is needed, where a part has no
/// window of context + 1 tokens.
TokenData make_token_data(const at::Tensor& tokens, int64_t context);

/// Holds the windows of a text whose tokens are the bytes that occur in it.
struct TextData {
  Vocabulary vocabulary;
  TextWindows train;
  TextWindows held_out;
};
TextData make_text_data(const std::string& text, int64_t context);

/// Examples as a batch: (B, T) tensors.
TokenBatch stack(const std::vector<TokenBatch>& examples);

}  // namespace examples
