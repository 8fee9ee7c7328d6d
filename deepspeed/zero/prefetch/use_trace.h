// Records in which order a kind of pass (a forward of training, an evaluation, ...) uses its parameters: the
// first pass writes the trace, later ones follow it, so that what comes next is known. A pure value: no
// tensor, no group. Calls but begin(), end() and beginning() take the same time however long the pass is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace deepspeed::zero {

class UseTrace {
 public:
  /// One use.
  struct Entry {
    uint64_t key = 0;   // of what is used
    int64_t numel = 0;  // its elements
  };

  /// Begins a pass, which follows the trace, if there is one.
  void begin();
  /// Notes the pass's next use; several uses of one key in a row count as one. Where the trace says something
  /// else, it is recorded anew from here on.
  void use(const Entry& entry);
  /// Ends the pass, and forgets what the trace says beyond it.
  void end();

  /// Whether the pass has followed the trace so far, and there is one: only then what lies ahead is known.
  bool is_followed() const { return is_followed_; }
  /// Elements of the uses between the latest use and the next one of `key`; none where the pass does not use
  /// it again.
  std::optional<int64_t> distance_to(uint64_t key) const;
  /// Returns the elements used before `key` in the next pass, from its start; nothing where it does not use
  /// it.
  std::optional<int64_t> distance_from_begin(uint64_t key) const;
  /// Elements of the uses that come after the latest one.
  int64_t rest() const { return end_of(uses_.size()) - end_of(position_); }
  /// Returns the keys with which the next pass starts, in order, each once, up to `max_numel` elements in
  /// all.
  std::vector<uint64_t> beginning(int64_t max_numel) const;

  size_t size() const { return uses_.size(); }
  /// The place of the next use.
  size_t position() const { return position_; }
  const Entry& entry(size_t place) const { return uses_[place].entry; }
  /// The last place before `place` whose use has its key.
  std::optional<size_t> previous(size_t place) const { return known(uses_[place].previous); }
  /// The next place after `place` whose use has its key.
  std::optional<size_t> next(size_t place) const { return known(uses_[place].next); }
  /// The place of the next use of `key` in a pass that follows the trace.
  std::optional<size_t> next_of(uint64_t key) const;

 private:
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  struct Use {
    Entry entry;
    int64_t end = 0;             // elements of all uses up to this one
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
  /// Elements of the first `count` uses.
  int64_t end_of(size_t count) const { return count == 0 ? 0 : uses_[count - 1].end; }
  void append(const Entry& entry);
  void pass_by(size_t place);
  /// Forgets what comes after the first `size` uses.
  void cut(size_t size);

  std::vector<Use> uses_;
  std::unordered_map<uint64_t, Places> places_;  // by key
  size_t position_ = 0;                          // of the next use
  bool is_followed_ = false;
};

}  // namespace deepspeed::zero
