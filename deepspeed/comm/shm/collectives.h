// The collectives of a group over shared memory. Each rank posts where its input lies, and its peers read
// from there what is theirs: nothing is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "deepspeed/comm/shm/member.h"
#include "deepspeed/comm/shm/read_pages.h"
#include "deepspeed/kernels/combine.h"

namespace deepspeed::comm::shm {

/// Says what all ranks must call alike, and until when a rank waits for the others.
struct Call {
  uint64_t fingerprint = 0;
  Clock::time_point deadline;
};

/// Is a range of bytes.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  size_t bytes() const { return end - begin; }
};

struct Reduction {
  kernels::CombineOp op = kernels::CombineOp::kSum;
  kernels::CombineType type = kernels::CombineType::kFloat32;
  double factor = 1.0;  // of the sums of reduce()
};

/// Runs one operation after the other, in the calling thread; each returns when its memory is the caller's
/// again. All ranks call the same in the same order: where a fingerprint or a size differs, ranks wait until
/// they are given up, as over a network. All throw what Member::wait() throws.
class Collectives {
 public:
  explicit Collectives(Member& member);

  void barrier(const Call& call);
  /// Leaves the result of all ranks' data in that of each.
  void all_reduce(const Call& call, void* data, size_t bytes, const Reduction& reduction);
  /// Leaves in `output` the result of this rank's range of the ranks' inputs, which may be that range.
  /// `ranges` has one a rank, in any place.
  void reduce(const Call& call, void* output, const void* input, size_t bytes,
              const std::vector<ByteRange>& ranges, const Reduction& reduction);
  /// Puts the ranks' inputs, `bytes` of each, one after the other into `output`, of which this rank's input
  /// may be its part.
  void all_gather(const Call& call, void* output, const void* input, size_t bytes);
  void broadcast(const Call& call, void* data, size_t bytes, int root);
  /// Puts block r of each rank's input, `bytes` of it, into the output of rank r.
  void all_to_all(const Call& call, void* output, const void* input, size_t bytes);

 private:
  /// Posts the input of the next operation; `in_pieces`: whatever it lies in.
  void begin(const Call& call, const void* input, size_t bytes, bool in_pieces);
  /// Says that this rank reads nothing more, and waits until nobody reads its memory.
  void end(const Call& call);
  const Post& post_of(int peer, const Call& call);
  void await_posts(const Call& call);

  bool is_staged() const { return own_post_.offset == kStaged; }
  /// Fills the next piece of this rank's stage once its half was read.
  void stage(const Call& call, const std::function<void(char* to)>& fill);
  /// Returns where piece `index` of a staged peer lies, once it does.
  const char* await_piece(const Call& call, int peer, uint32_t index);
  void have_read(int peer, uint32_t index);
  /// Says what was read of a peer's arena, so that it does not stay mapped without end.
  void note_read(int peer, const char* data, size_t bytes);

  /// Hands this rank's range of each peer's input, or pieces of it, to `take`. Returns how many pieces staged
  /// ranks used.
  using TakePiece = std::function<void(size_t at, size_t bytes, const std::vector<const char*>& from)>;
  uint32_t scatter(const Call& call, const void* input, const std::vector<ByteRange>& ranges,
                   const TakePiece& take);
  /// Hands all that each peer has, `bytes[r]`, or pieces of it, to `take`. from_arena: says where it lies for
  /// those that are not staged, once it may be read; first_piece: how many pieces were used before.
  using TakeWhole = std::function<void(int peer, size_t at, size_t bytes, const char* from)>;
  void spread(const Call& call, const char* own, const std::vector<size_t>& bytes, uint32_t first_piece,
              const std::function<const char*(int peer)>& from_arena, const TakeWhole& take);
  void all_reduce_small(const Call& call, void* data, size_t bytes, const Reduction& reduction);

  template <class Function>
  void for_peers(const Function& function) const {
    for (int step = 1; step < member_.size(); ++step) function((member_.rank() + step) % member_.size());
  }

  Member& member_;
  uint32_t number_ = 0;      // of the operation under way
  uint32_t num_staged_ = 0;  // pieces of this rank
  Post own_post_;
  std::vector<Post> posts_;            // of the operation under way, by rank
  std::vector<ReadPages> read_pages_;  // of the arenas, by rank
};

}  // namespace deepspeed::comm::shm
