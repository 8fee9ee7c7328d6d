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

namespace gpt2 {

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
struct GptBatch {
  at::Tensor tokens;
  at::Tensor targets;
};

/// Windows of `context` tokens that start every `stride` tokens of one text.
class TextWindows : public torch::data::datasets::Dataset<TextWindows, GptBatch> {
 public:
  /// tokens: (N) int64 with N > context. Throws deepspeed::UsageError for fewer.
  TextWindows(at::Tensor tokens, int64_t context, int64_t stride);

  GptBatch get(size_t index) override;
  c10::optional<size_t> size() const override { return static_cast<size_t>(num_windows_); }

 private:
  at::Tensor tokens_;
  int64_t context_;
  int64_t stride_;
  int64_t num_windows_;
};

/// A text cut in two: windows at every position to train on, and the last tenth, in windows side by side,
/// held out.
struct TextData {
  Vocabulary vocabulary;
  TextWindows train;
  TextWindows held_out;
};

/// Throws deepspeed::UsageError, with the length that is needed, where a part has no window of context + 1
/// tokens.
TextData make_text_data(const std::string& text, int64_t context);

/// Examples as a batch: (B, T) tensors.
GptBatch stack(const std::vector<GptBatch>& examples);

}  // namespace gpt2
