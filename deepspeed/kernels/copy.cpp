#include "deepspeed/kernels/copy.h"

#include <cstring>

#include "deepspeed/kernels/cpu/messages/message_kernels.h"

namespace deepspeed::kernels {

void copy(void* to, const void* from, size_t bytes, Stores stores) {
  if (stores == Stores::kCached) {
    std::memcpy(to, from, bytes);
  } else {
    copy_past_caches_simd(to, from, bytes);
  }
}

}  // namespace deepspeed::kernels
