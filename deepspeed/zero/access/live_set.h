// Orders live items by their latest use, and counts their elements against a limit: pure bookkeeping.
#pragma once

#include <cstdint>
#include <iterator>
#include <list>

namespace deepspeed::zero {

/// Holds pointers to items that the caller owns. Not thread-safe.
template <class Item>
class LiveSet {
 public:
  /// Locates an item in the set. The caller keeps it for later calls.
  struct Place {
    typename std::list<Item*>::iterator in_order;
    typename std::list<Item*>::iterator among_evictable;  // unless is_persistent
    int64_t counted_numel = 0;
    bool is_persistent = false;
  };

  explicit LiveSet(int64_t max_numel) : max_numel_(max_numel) {}

  bool empty() const { return items_.empty(); }
  /// Returns the sum of all items' counted_numel.
  int64_t numel() const { return numel_; }
  /// Returns how many elements may be added; negative if the limit is exceeded.
  int64_t room() const { return max_numel_ - numel_; }
  /// Returns the least recently used item, which may be persistent.
  Item* oldest() const { return items_.front(); }
  /// Returns the most recently used item; null if there is none.
  Item* latest() const { return items_.empty() ? nullptr : items_.back(); }

  /// Adds an item as most recently used, and returns its place. persistent: make_room() skips it.
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

  /// Calls `visit` with each item, least recently used first. `visit` may remove that item.
  template <class Visit>
  void for_each(Visit visit) {
    for (auto next = items_.begin(); next != items_.end();) visit(**next++);
  }
  /// Calls `evict` with items until `numel` more elements fit. Skips persistent items; the least recently
  /// used come first. `evict` removes the item, or leaves it if it is in use.
  template <class Evict>
  void make_room(int64_t numel, Evict evict) {
    for (auto next = evictable_.begin(); next != evictable_.end() && room() < numel;) evict(**next++);
  }

 private:
  int64_t max_numel_;
  int64_t numel_ = 0;
  std::list<Item*> items_;      // most recently used last
  std::list<Item*> evictable_;  // those that are not persistent, in the same order
};

}  // namespace deepspeed::zero
