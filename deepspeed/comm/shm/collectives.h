// Runs the collectives of a group over shared memory. Each rank posts where its input lies, and its peers
// read what they need from there. Nothing is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "deepspeed/comm/shm/member.h"
#include "deepspeed/comm/shm/read_pages.h"
#include "deepspeed/kernels/combine.h"

namespace deepspeed::comm::shm {

/// Describes one call: a fingerprint, equal on all ranks, and the deadline.
struct Call {
  uint64_t fingerprint = 0;
  Clock::time_point deadline;
};

/// Describes the bytes [begin, end) of an input.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  size_t bytes() const { return end - begin; }
};

struct Reduction {
  kernels::CombineOp op = kernels::CombineOp::kSum;
  kernels::CombineType type = kernels::CombineType::kFloat32;
  double factor = 1.0;  // multiplies the sums of reduce()
};

/// Runs collectives one after another in the calling thread. Each returns once the caller may reuse its
/// memory. All ranks must make equal calls in the same order. If a fingerprint or a size differs, the ranks
/// wait until the group is given up or the deadline passes, as over a network. Every function throws what
/// Member::wait() throws.
class Collectives {
 public:
  explicit Collectives(Member& member);

  void barrier(const Call& call);
  /// Replaces every rank's data by the reduction of all ranks' data.
  void all_reduce(const Call& call, void* data, size_t bytes, const Reduction& reduction);
  /// Reduces this rank's range of all inputs into `output`, which may be that range. `bytes` is the size of
  /// the whole input. `ranges` has one entry per rank; they may lie anywhere in the input.
  void reduce(const Call& call, void* output, const void* input, size_t bytes,
              const std::vector<ByteRange>& ranges, const Reduction& reduction);
  /// Concatenates the ranks' inputs, each of `bytes`, into `output` in rank order. The input may be this
  /// rank's part of `output`.
  void all_gather(const Call& call, void* output, const void* input, size_t bytes);
  void broadcast(const Call& call, void* data, size_t bytes, int root);
  /// Sends block r of the input to rank r, and stores rank r's block as block r of the output. `bytes` is the
  /// size of one block.
  void all_to_all(const Call& call, void* output, const void* input, size_t bytes);

 private:
  /// Tells the peers where the next operation's input lies (slot.h). With `in_pieces`, the peers get the
  /// input through this rank's stage even if it lies in the arena.
  void begin(const Call& call, const void* input, size_t bytes, bool in_pieces);
  /// Posts that this rank has read everything. If the input is in the arena, waits until all peers have read
  /// it.
  void end(const Call& call);
  const Post& post_of(int peer, const Call& call);
  void await_posts(const Call& call);

  bool is_staged() const { return own_post_.offset == kStaged; }
  /// Calls `fill` to write the next piece to one half of this rank's stage. Waits first until the peers have
  /// read that half.
  void stage(const Call& call, const std::function<void(char* to)>& fill);
  /// Waits for piece `index`, counted from 0 in this operation, of a peer's staged input. Returns its
  /// address.
  const char* await_piece(const Call& call, int peer, uint32_t index);
  void have_read(int peer, uint32_t index);
  /// Notes that `bytes` at `data` in a peer's arena were read. Their pages can then be unmapped.
  void note_read(int peer, const char* data, size_t bytes);

  /// Passes this rank's range of every input to `take`, in pieces if needed. `at` is a piece's offset in the
  /// range, and `from` has its address by rank. Returns the number of pieces that staged ranks used.
  using TakePiece = std::function<void(size_t at, size_t bytes, const std::vector<const char*>& from)>;
  uint32_t scatter(const Call& call, const void* input, const std::vector<ByteRange>& ranges,
                   const TakePiece& take);
  /// Passes all of each peer's data, `bytes[r]` long, to `take`, in pieces if needed. `own` is this rank's
  /// data, `at` a piece's offset. `from_arena` waits until a peer's data that is not staged may be read, and
  /// returns its address. `first_piece` is the number of pieces that this operation has used before.
  using TakeWhole = std::function<void(int peer, size_t at, size_t bytes, const char* from)>;
  void spread(const Call& call, const char* own, const std::vector<size_t>& bytes, uint32_t first_piece,
              const std::function<const char*(int peer)>& from_arena, const TakeWhole& take);
  void all_reduce_small(const Call& call, void* data, size_t bytes, const Reduction& reduction);

  template <class Function>
  void for_peers(const Function& function) const {
    for (int step = 1; step < member_.size(); ++step) function((member_.rank() + step) % member_.size());
  }

  Member& member_;
  uint32_t number_ = 0;      // of the current operation, counted from 1
  uint32_t num_staged_ = 0;  // pieces that this rank has staged
  Post own_post_;
  std::vector<Post> posts_;            // the current operation's, by rank
  std::vector<ReadPages> read_pages_;  // the arenas' pages, by rank
};

}  // namespace deepspeed::comm::shm
