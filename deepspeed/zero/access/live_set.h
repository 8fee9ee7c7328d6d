// Orders what is whole or on its way by its latest use, and counts its elements against a limit: pure
// bookkeeping.
#pragma once

#include <cstdint>
#include <iterator>
#include <list>

namespace deepspeed::zero {

/// Holds pointers to items that the caller owns. Not thread-safe.
template <class Item>
class LiveSet {
 public:
  /// Where an item stands in the set. The caller keeps it, and gives it back.
  struct Place {
    typename std::list<Item*>::iterator in_order;
    typename std::list<Item*>::iterator among_evictable;  // unless is_persistent
    int64_t counted_numel = 0;
    bool is_persistent = false;
  };

  explicit LiveSet(int64_t max_numel) : max_numel_(max_numel) {}

  bool empty() const { return items_.empty(); }
  /// How many elements the items count, all together.
  int64_t numel() const { return numel_; }
  /// How many elements may be added; below 0 where the limit is exceeded.
  int64_t room() const { return max_numel_ - numel_; }
  /// The least recently used item, persistent ones included.
  Item* oldest() const { return items_.front(); }
  /// The most recently used item; null where there is none.
  Item* latest() const { return items_.empty() ? nullptr : items_.back(); }

  /// Adds an item as most recently used. persistent: make_room() leaves it alone.
  Place add(Item& item, int64_t counted_numel, bool persistent) {
    Place place;
    place.counted_numel = counted_numel;
    place.is_persistent = persistent;
    place.in_order = items_.insert(items_.end(), &item);
    if (!persistent) place.among_evictable = evictable_.insert(evictable_.end(), &item);
    numel_ += counted_numel;
    return place;
  }
  void remove(const Place& place) {
    items_.erase(place.in_order);
    if (!place.is_persistent) evictable_.erase(place.among_evictable);
    numel_ -= place.counted_numel;
  }
  /// Makes an item the most recently used one.
  void note_used(const Place& place) {
    items_.splice(items_.end(), items_, place.in_order);
    if (!place.is_persistent) evictable_.splice(evictable_.end(), evictable_, place.among_evictable);
  }

  /// Calls `visit` with each item, the oldest first; it may remove that item.
  template <class Visit>
  void for_each(Visit visit) {
    for (auto next = items_.begin(); next != items_.end();) visit(**next++);
  }
  /// Calls `evict` with items that are not persistent, the oldest first, until `numel` more elements fit.
  /// It removes the item, or leaves one that is in use.
  template <class Evict>
  void make_room(int64_t numel, Evict evict) {
    for (auto next = evictable_.begin(); next != evictable_.end() && room() < numel;) evict(**next++);
  }

 private:
  int64_t max_numel_;
  int64_t numel_ = 0;
  std::list<Item*> items_;      // the most recently used last
  std::list<Item*> evictable_;  // of these, in their order, those that are not persistent
};

}  // namespace deepspeed::zero
