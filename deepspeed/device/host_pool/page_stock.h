// Holds memory that one range of addresses no longer needs, for the next range that does.
#pragma once

#include <cstddef>

#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::device {

/// Moves pages between ranges of addresses through the system's page tables. Nothing is copied, and the
/// system need not clear reused memory, which costs more than writing it. Use it from one thread at a time.
class PageStock {
 public:
  /// `addresses` is the maximum number of bytes held.
  explicit PageStock(size_t addresses);
  ~PageStock();
  PageStock(const PageStock&) = delete;
  PageStock& operator=(const PageStock&) = delete;

  /// Moves the memory of whole huge pages, private and writable, into the stock. The range stays mapped and
  /// gets new pages of zeros when touched. If the system cannot move pages, their memory is returned to it.
  void put(char* from, size_t bytes);
  /// Moves memory, with undefined values, from the stock to the beginning of the range. The range's own
  /// memory is lost. Returns the number of bytes moved.
  size_t take(char* to, size_t bytes);
  /// Returns memory to the system until at most this many bytes are left.
  void trim(size_t most);
  size_t bytes() const { return bytes_; }

 private:
  Addresses addresses_;
  size_t bytes_ = 0;  // at the beginning of addresses_
};

}  // namespace deepspeed::device
