// Anonymous memory that processes on one machine share. It is freed when the last of them ends, however they
// end.
#pragma once

#include <cstddef>
#include <memory>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::comm::shm {

/// Owns a range of addresses that maps shared memory.
class Mapping {
 public:
  Mapping(device::Addresses addresses, size_t bytes) : addresses_(addresses), bytes_(bytes) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* data() const { return addresses_.data; }
  size_t bytes() const { return bytes_; }

 private:
  device::Addresses addresses_;
  size_t bytes_;
};

/// Makes `bytes` of shared memory, for which no pages are allocated yet. Its size cannot change. Throws
/// CommError if the system or a limit of the process refuses.
Descriptor make_memory(size_t bytes);
/// Returns a read-only descriptor of the memory. Throws CommError.
Descriptor for_reading(const Descriptor& memory);
/// Allocates the pages of the `bytes` from offset `begin` in the memory. Returns false if memory runs out;
/// touching the range then raises SIGBUS.
bool add_pages(const Descriptor& memory, size_t begin, size_t bytes);
/// Allocates the whole huge pages within the `bytes` from offset `begin`, as far as the system has any. With
/// small pages, address lookups take a quarter of a sum's time. Call add_pages() afterwards to allocate the
/// rest.
void add_huge_pages(const Descriptor& memory, const Mapping& mapping, size_t begin, size_t bytes);
/// Gives the pages of the `bytes` from offset `begin` back to the system. Their content is lost.
void drop_pages(const Descriptor& memory, size_t begin, size_t bytes);

/// Tells how a mapping is used. kOwn (this process's arena) and kCommon (a control block) can be read and
/// written; child processes do not inherit kCommon. kPeer (a peer's arena) is read-only.
enum class MappingUse { kOwn, kCommon, kPeer };

/// Maps the first `bytes` of the memory at a multiple of kHugePage. A process has one mapping for each memory
/// and use, which all callers share. Throws CommError, also if the memory could shrink: reads beyond its end
/// would raise SIGBUS.
std::shared_ptr<Mapping> map_memory(const Descriptor& memory, size_t bytes, MappingUse use);

}  // namespace deepspeed::comm::shm
