// Records the order in which a kind of pass (a training forward, an evaluation, ...) uses its parameters. The
// first pass writes the trace; later ones follow it, so that what comes next is known. It is a pure value
// without tensors or groups. All calls but begin(), end() and beginning() take constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace deepspeed::zero {

class UseTrace {
 public:
  /// Describes one use of a parameter in a pass.
  struct Entry {
    uint64_t key = 0;   // of the parameter or unit (Gatherable::key)
    int64_t numel = 0;  // its elements
  };

  /// Begins a pass, which follows the trace if there is one.
  void begin();
  /// Notes the pass's next use. Several uses of one key in a row count as one. If the trace differs, it is
  /// recorded again from this use on.
  void use(const Entry& entry);
  /// Ends the pass, and removes the trace's uses after the pass's last one.
  void end();

  /// Returns whether the pass has followed a trace so far. Only then is the future known.
  bool is_followed() const { return is_followed_; }
  /// Returns how many elements the pass uses before the next use of `key`. Returns nothing if the pass does
  /// not use `key` again, or follows no trace.
  std::optional<int64_t> distance_to(uint64_t key) const;
  /// Returns how many elements the next pass uses before the parameter `key`. Returns nothing if it does not
  /// use that parameter.
  std::optional<int64_t> distance_from_begin(uint64_t key) const;
  /// Returns how many elements the rest of the trace uses, after the pass's latest use.
  int64_t rest() const { return end_of(uses_.size()) - end_of(position_); }
  /// Returns the keys with which the next pass starts, in order, each once. They have at most `max_numel`
  /// elements in total.
  std::vector<uint64_t> beginning(int64_t max_numel) const;

  size_t size() const { return uses_.size(); }
  /// Returns the place (index in the trace) of the next use.
  size_t position() const { return position_; }
  const Entry& entry(size_t place) const { return uses_[place].entry; }
  /// Returns the last place before `place` with the same key.
  std::optional<size_t> previous(size_t place) const { return known(uses_[place].previous); }
  /// Returns the next place after `place` with the same key.
  std::optional<size_t> next(size_t place) const { return known(uses_[place].next); }
  /// Returns the place of the next use of `key`, if the pass follows the trace.
  std::optional<size_t> next_of(uint64_t key) const;

 private:
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  struct Use {
    Entry entry;
    int64_t end = 0;             // elements of all uses up to and including this one
    size_t previous = kNowhere;  // of the same key
    size_t next = kNowhere;
  };
  struct Places {
    size_t first = kNowhere;
    size_t last = kNowhere;
    size_t next = kNowhere;  // from the position on, while a pass follows
  };

  static std::optional<size_t> known(size_t place) {
    return place == kNowhere ? std::nullopt : std::optional(place);
  }
  /// Returns how many elements the first `count` uses have.
  int64_t end_of(size_t count) const { return count == 0 ? 0 : uses_[count - 1].end; }
  void append(const Entry& entry);
  void pass_by(size_t place);
  /// Forgets all but the first `size` uses.
  void cut(size_t size);

  std::vector<Use> uses_;
  std::unordered_map<uint64_t, Places> places_;  // by key
  size_t position_ = 0;                          // of the next use
  bool is_followed_ = false;
};

}  // namespace deepspeed::zero
