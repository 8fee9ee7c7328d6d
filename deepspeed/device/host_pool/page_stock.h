// Memory that one range of addresses does not need any more, for the next range that does.
#pragma once

#include <cstddef>

#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::device {

/// Moves pages between ranges of addresses by the system's page tables: nothing is copied, and memory that
/// comes again needs not be cleared by the system, which costs more than to write it. Is used by one thread
/// at a time.
class PageStock {
 public:
  /// addresses: the most bytes that it can hold.
  explicit PageStock(size_t addresses);
  ~PageStock();
  PageStock(const PageStock&) = delete;
  PageStock& operator=(const PageStock&) = delete;

  /// Takes the memory of whole huge pages, of private memory that may be written. The range stays, and is
  /// zeros in new pages where it is touched again. Where the system moves none, memory goes back to it
  /// instead.
  void put(char* from, size_t bytes);
  /// Moves memory, with any values, to the beginning of the range, whose own is gone then. Returns for how
  /// many bytes there was some.
  size_t take(char* to, size_t bytes);
  /// Gives memory back to the system but for so many bytes.
  void trim(size_t most);
  size_t bytes() const { return bytes_; }

 private:
  Addresses addresses_;
  size_t bytes_ = 0;  // at its beginning
};

}  // namespace deepspeed::device
