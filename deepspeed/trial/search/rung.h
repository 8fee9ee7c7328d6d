// A rung of a bracket: the trials that have reported there, in the order of their metrics.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepspeed::trial {

/// Ranks a trial: metrics that are numbers first, then NaN, then failures. Equal ones go by trial number.
struct Score {
  enum class Kind { kNumber, kNan, kFailure };

  Kind kind = Kind::kNumber;
  double value = 0;  ///< smaller is better; 0 if it is no number
  int64_t trial = 0;

  /// Makes a score of a metric. If larger metrics are better their sign is changed.
  static Score of(int64_t trial, double metric, bool smaller_is_better);
  static Score failure(int64_t trial) { return {Kind::kFailure, 0, trial}; }

  friend auto operator<=>(const Score&, const Score&) = default;
};

/// Holds the score of a trial that has reported in the rung.
struct RungEntry {
  Score score;
  bool promoted = false;  ///< to the next rung

  friend bool operator==(const RungEntry&, const RungEntry&) = default;
};

/// Keeps entries sorted, the best one first.
class Rung {
 public:
  explicit Rung(int64_t length) : length_(length) {}

  /// Adds a score. Returns its place, counted from 0.
  size_t add(const Score& score);
  /// Promotes the first floor(n / divisor) of the n entries. Returns those that were not promoted before, the
  /// best one first.
  std::vector<Score> promote(int64_t divisor);
  /// Marks the entry at `place` as promoted.
  void promote_at(size_t place);
  /// Closes the rung: all trials that will ever reach it are there.
  void close() { is_closed_ = true; }

  bool is_closed() const { return is_closed_; }
  int64_t length() const { return length_; }
  int64_t num_promoted() const { return num_promoted_; }
  const std::vector<RungEntry>& entries() const { return entries_; }

  friend bool operator==(const Rung&, const Rung&) = default;

 private:
  int64_t length_;
  int64_t num_promoted_ = 0;
  bool is_closed_ = false;
  std::vector<RungEntry> entries_;
};

}  // namespace deepspeed::trial
