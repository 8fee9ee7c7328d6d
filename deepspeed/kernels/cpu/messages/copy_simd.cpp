#include <algorithm>
#include <cstdint>
#include <cstring>

#include "deepspeed/kernels/cpu/messages/message_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/messages/copy_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void copy_of_target(uint8_t* to, const uint8_t* from, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  const size_t head = std::min(bytes, (lanes - reinterpret_cast<uintptr_t>(to) % lanes) % lanes);
  std::memcpy(to, from, head);
  size_t i = head;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto a = hn::LoadU(d, from + i);
    const auto b = hn::LoadU(d, from + i + lanes);
    const auto c = hn::LoadU(d, from + i + 2 * lanes);
    const auto e = hn::LoadU(d, from + i + 3 * lanes);
    hn::Stream(a, d, to + i);
    hn::Stream(b, d, to + i + lanes);
    hn::Stream(c, d, to + i + 2 * lanes);
    hn::Stream(e, d, to + i + 3 * lanes);
  }
  std::memcpy(to + i, from + i, bytes - i);
  hwy::FlushStream();
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(copy_of_target);

void copy_past_caches_simd(void* to, const void* from, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy_of_target)(static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), bytes);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
