// In which order a kind of pass (a training step's forward, an evaluation, ...) uses its parameters: recorded
// in the first one, followed in later ones, so that one knows what comes next. A pure value: no tensor, no
// group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace deepspeed::zero {

class UseTrace {
 public:
  /// One use.
  struct Entry {
    uint64_t key = 0;   // of what is used
    int64_t numel = 0;  // its elements
  };

  /// A pass begins: it follows the trace, if there is one.
  void begin();
  /// The pass uses this next; several uses in a row count as one. Where the trace says something else, it is
  /// recorded anew from here on.
  void use(const Entry& entry);
  /// The pass is over: what the trace says beyond it is forgotten.
  void end();

  /// Whether the pass has followed the trace so far, and there is one: only then the next three know
  /// something.
  bool is_followed() const { return is_followed_; }
  /// What comes after the latest use.
  std::optional<uint64_t> next() const;
  /// The same and what follows, in order, each once, as long as all of it together has at most
  /// `max_numel` elements.
  std::vector<uint64_t> ahead(int64_t max_numel) const;
  /// The same of a further pass, from its begin on.
  std::vector<uint64_t> beginning(int64_t max_numel) const { return keys_from(0, max_numel); }
  /// Elements of the uses between the latest use and the next one of `key`; none where the pass does not use
  /// it again.
  std::optional<int64_t> distance_to(uint64_t key) const;
  /// The same of a further pass, from its begin on.
  std::optional<int64_t> distance_from_begin(uint64_t key) const { return distance_from(0, key); }
  /// Elements of the uses that come after the latest one.
  int64_t rest() const;

  size_t size() const { return entries_.size(); }

 private:
  std::vector<uint64_t> keys_from(size_t place, int64_t max_numel) const;
  std::optional<int64_t> distance_from(size_t place, uint64_t key) const;

  std::vector<Entry> entries_;
  size_t position_ = 0;  // of the next use
  bool is_followed_ = false;
};

}  // namespace deepspeed::zero
