// Copies between the device and page-locked memory of the host that the host does not know to be done.
//
// The host's loads and stores cannot be watched, so its memory tells: the destination of a copy holds poison
// until the host has waited; the source is compared, once the host knows that the copy is done, with what it
// was.
#pragma once

#include <cstddef>

#include <c10/core/Stream.h>

namespace deepspeed::simulated {

/// The stream's latest work copies host memory, as it is now, to the device: until its end it must stay as it
/// is.
void watch_source(const char* name, const c10::Stream& stream, const void* data, size_t bytes);
/// The stream's latest work has copied to host memory: hides it until the host waits.
void hide_destination(const char* name, const c10::Stream& stream, void* data, size_t bytes);
/// Call it before a stream reads or writes host memory: shows what earlier work has put there. Work that
/// writes also ends the watch over earlier copies from there, which it comes behind.
void reveal(const void* data, size_t bytes, bool writes);

// --- for the files of this folder, under the lock

/// Ends the watch over copies of which the host knows now.
void settle_known_copies();
/// Ends the watch over copies in memory that is given back to torch's pool, which waits for them.
void forget_copies(const void* data, size_t bytes);

}  // namespace deepspeed::simulated
