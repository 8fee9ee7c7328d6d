// The device's memory, page-locked memory, and who uses it when.
//
// Each use of memory by a stream is held against those before it: two of them, one of which writes, of which
// neither is ordered before the other are a race, whatever the timing of a real GPU would have made of it.
// Addresses of the device are pages without access, so that the host cannot follow them; the bytes lie
// elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace deepspeed::simulated {

c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();

bool is_pinned(const void* data);
/// What cudaHostRegister() and cudaHostUnregister() do.
void pin(void* data, size_t bytes);
void unpin(void* data);

/// Keeps memory from being given out anew until the stream's work of now is done.
void record_stream(const void* data, const c10::Stream& stream);
/// Returns where the bytes of a device address lie. Throws where it is none, or its memory was freed.
char* bytes_at(const void* data);

/// Bytes that a piece of work uses: a device address, or memory of the host.
struct Use {
  const void* data;
  size_t bytes;
  bool writes;
};
/// Gives work to a stream. Returns false where it races with other work: its results are to be poison then.
bool launch(const char* name, const c10::Stream& stream, const std::vector<Use>& uses);

/// What memory holds that nobody has written: not-a-numbers of all floating types, and -1 of integers.
constexpr unsigned char kPoison = 0xFF;

}  // namespace deepspeed::simulated
