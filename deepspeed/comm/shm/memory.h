// Memory without a name that processes of one machine share: it goes with the last of them, whatever ends
// them.
#pragma once

#include <cstddef>
#include <memory>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::comm::shm {

/// Is a range of addresses over shared memory, until it is destroyed.
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

/// Makes `bytes` of memory that no page belongs to yet; nobody can change its size. Throws CommError where
/// the system or a limit of the process refuses.
Descriptor make_memory(size_t bytes);
/// Returns a descriptor of the memory with which it can be read and not written. Throws CommError.
Descriptor for_reading(const Descriptor& memory);
/// Gives the range pages. Returns false where there is no memory: touching it would end the process.
bool add_pages(const Descriptor& memory, size_t begin, size_t bytes);
/// Gives the whole huge pages of the range memory, as far as the system has such pages free: look-ups of
/// addresses take a quarter of a sum's time with small ones. What gets none is to be given to add_pages().
void add_huge_pages(const Descriptor& memory, const Mapping& mapping, size_t begin, size_t bytes);
/// Gives the pages of the range back.
void drop_pages(const Descriptor& memory, size_t begin, size_t bytes);

/// Says what a mapping is for: kOwn is written and read by this process, as are kCommon ones, which children
/// of the process do not get; kPeer is read.
enum class MappingUse { kOwn, kCommon, kPeer };

/// Maps the memory, from a multiple of kHugePage on. The mappings of one memory and use are one in a process,
/// whoever asks for them. Throws CommError, also for memory that somebody could cut short: who reads behind
/// its end is ended by a signal.
std::shared_ptr<Mapping> map_memory(const Descriptor& memory, size_t bytes, MappingUse use);

}  // namespace deepspeed::comm::shm
