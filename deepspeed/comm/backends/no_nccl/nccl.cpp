#include "deepspeed/comm/backends/nccl.h"

#include "deepspeed/base/error.h"

namespace deepspeed::comm {

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const Job&, const c10::intrusive_ptr<c10d::Store>&, int,
                                                    int) {
  raise<NotSupportedError>(
      "dist_backend is 'nccl', but this build has no CUDA; use 'gloo', or build with "
      "-DDEEPSPEED_CUDA=ON");
}

}  // namespace deepspeed::comm
