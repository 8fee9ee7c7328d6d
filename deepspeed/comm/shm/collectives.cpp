// How ranks read each other's memory.
//
// begin() posts an operation. The post gives the input's offset in this rank's arena, or says that the input
// is staged. A staged input is copied piece by piece into one half of the stage while the peers read the
// other half. Small inputs are always staged, because the copy costs less than the wait in end().
//
// scatter() serves reductions and all-to-all: each rank reads its own range of every peer's input. spread()
// serves gathers: each rank reads every input whole. All ranks cut their ranges the same way, so piece i of
// every staged rank is filled and read in the same round. An all-reduce reduces equal ranges, then gathers
// the sums from where they were made. In a small one every rank gathers all inputs and sums them itself.
// end() posts that this rank is done, and waits until its peers have read its memory.
#include "deepspeed/comm/shm/collectives.h"

#include <algorithm>
#include <cstring>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/combine.h"

namespace deepspeed::comm::shm {
namespace {

// Inputs of at most this many bytes are staged even if they lie in the arena.
constexpr size_t kAlwaysStaged = 16 << 10;
// In a small all-reduce every rank sums everything itself, reading at most this many bytes.
constexpr size_t kMostSummedByAll = 256 << 10;
constexpr size_t kCacheLine = 64;
// At most this many bytes of one peer's arena, and of all arenas, stay mapped after they were read. Mapped
// pages count as this rank's memory too, and mapping them again costs little compared with reading them.
constexpr size_t kMostMappedOfOne = size_t{4} << 20;
constexpr size_t kMostMapped = size_t{256} << 20;
constexpr size_t kMostAtOnce = size_t{2} << 20;
// Results of at least this many bytes bypass the caches, which cannot hold them anyway.
constexpr size_t kStoredPastCaches = size_t{8} << 20;

kernels::Stores stores_of(size_t bytes) {
  return bytes < kStoredPastCaches ? kernels::Stores::kCached : kernels::Stores::kPastCaches;
}

std::vector<ByteRange> equal_ranges(size_t bytes, size_t element, int size) {
  std::vector<ByteRange> ranges;
  const size_t numel = bytes / element;
  const auto bound = [&](int rank) {
    return numel * static_cast<size_t>(rank) / static_cast<size_t>(size) * element;
  };
  for (int rank = 0; rank < size; ++rank) ranges.push_back({bound(rank), bound(rank + 1)});
  return ranges;
}

}  // namespace

Collectives::Collectives(Member& member) : member_(member) {
  for (int rank = 0; rank < member.size(); ++rank)
    read_pages_.emplace_back(member.peer(rank).arena_mapping());
}

void Collectives::note_read(int peer, const char* data, size_t bytes) {
  const auto num_peers = static_cast<size_t>(std::max(1, member_.size() - 1));
  read_pages_[static_cast<size_t>(peer)].note(data, bytes,
                                              std::min(kMostMappedOfOne, kMostMapped / num_peers));
}

void Collectives::begin(const Call& call, const void* input, size_t bytes, bool in_pieces) {
  ++number_;
  // The post's place in the ring is free once all peers are done with the earlier post there.
  if (number_ > kNumPosts) {
    for_peers([&](int peer) {
      member_.wait(member_.slot().of(peer).done, number_ - kNumPosts, number_ - kNumPosts, call.deadline);
    });
  }
  own_post_ = {call.fingerprint, bytes, kStaged, num_staged_ + 1};
  Arena* const arena = member_.arena();
  if (arena != nullptr && !in_pieces && bytes > kAlwaysStaged) {
    if (const auto offset = arena->offset_of(input, bytes)) own_post_.offset = *offset;
  }
  RankBlock& own = member_.own();
  own.ring[number_ % kNumPosts] = own_post_;
  own.posted.advance(number_);
}

void Collectives::end(const Call& call) {
  member_.own().done.advance(number_);
  if (is_staged()) return;
  for_peers([&](int peer) { member_.wait(member_.slot().of(peer).done, number_, number_, call.deadline); });
}

const Post& Collectives::post_of(int peer, const Call& call) {
  RankBlock& block = member_.slot().of(peer);
  member_.wait(block.posted, number_, number_, call.deadline);
  Post& post = posts_[static_cast<size_t>(peer)];
  post = block.ring[number_ % kNumPosts];
  // The peer called something else. The ranks wait, and the group's divergence guard compares their calls.
  if (post.call != call.fingerprint || post.bytes != own_post_.bytes)
    member_.wait_for_the_end(number_, call.deadline);
  // Only this checked copy is used from here on, because the peer can overwrite its post.
  const size_t most = member_.peer(peer).arena_bytes();
  if (post.offset != kStaged && (post.bytes > most || post.offset > most - post.bytes))
    throw CommError("the input that " + member_.describe(peer) + " posted lies outside its memory");
  return post;
}

void Collectives::await_posts(const Call& call) {
  posts_.resize(static_cast<size_t>(member_.size()));
  for_peers([&](int peer) { post_of(peer, call); });
}

void Collectives::stage(const Call& call, const std::function<void(char* to)>& fill) {
  const uint32_t piece = ++num_staged_;
  for_peers([&](int peer) {
    member_.wait(member_.slot().read_of(peer, member_.rank()), piece - 2, number_, call.deadline);
  });
  fill(member_.slot().stage(member_.rank(), piece));
  member_.own().staged.advance(piece);
}

const char* Collectives::await_piece(const Call& call, int peer, uint32_t index) {
  const uint32_t piece = posts_[static_cast<size_t>(peer)].first_piece + index;
  member_.wait(member_.slot().of(peer).staged, piece, number_, call.deadline);
  return member_.slot().stage(peer, piece);
}

void Collectives::have_read(int peer, uint32_t index) {
  member_.slot().read_of(member_.rank(), peer).advance(posts_[static_cast<size_t>(peer)].first_piece + index);
}

uint32_t Collectives::scatter(const Call& call, const void* input, const std::vector<ByteRange>& ranges,
                              const TakePiece& take) {
  const int size = member_.size(), rank = member_.rank();
  const size_t most = Slot::stage_bytes(size) / static_cast<size_t>(size) / kCacheLine * kCacheLine;
  size_t longest = 0;
  for (const ByteRange& range : ranges) longest = std::max(longest, range.bytes());
  const auto* const own = static_cast<const char*>(input);
  const auto part = [&](int of, size_t at) {
    const size_t left = ranges[static_cast<size_t>(of)].bytes();
    return left > at ? std::min(most, left - at) : 0;
  };
  const auto fill = [&](size_t at) {
    stage(call, [&](char* to) {
      for_peers([&](int peer) {
        const size_t bytes = part(peer, at);
        if (bytes == 0) return;
        std::memcpy(to + static_cast<size_t>(peer) * most, own + ranges[static_cast<size_t>(peer)].begin + at,
                    bytes);
      });
    });
  };
  if (is_staged() && longest > 0) fill(0);
  await_posts(call);
  bool is_any_staged = is_staged();
  for_peers([&](int peer) {
    is_any_staged = is_any_staged || posts_[static_cast<size_t>(peer)].offset == kStaged;
  });
  const ByteRange mine = ranges[static_cast<size_t>(rank)];
  std::vector<const char*> from(static_cast<size_t>(size));
  if (!is_any_staged) {
    for_peers([&](int peer) {
      from[static_cast<size_t>(peer)] =
          member_.peer(peer).arena() + posts_[static_cast<size_t>(peer)].offset + mine.begin;
    });
    from[static_cast<size_t>(rank)] = own + mine.begin;
    for (size_t at = 0; at < mine.bytes(); at += kMostAtOnce) {
      const size_t bytes = std::min(kMostAtOnce, mine.bytes() - at);
      take(at, bytes, from);
      for_peers([&](int peer) {
        const char*& place = from[static_cast<size_t>(peer)];
        note_read(peer, place, bytes);
        place += bytes;
      });
      from[static_cast<size_t>(rank)] += bytes;
    }
    return 0;
  }
  uint32_t index = 0;
  for (size_t at = 0; at < longest; at += most, ++index) {
    // Stage one piece ahead, so that no peer waits for the copy.
    if (is_staged() && at + most < longest) fill(at + most);
    const size_t bytes = part(rank, at);
    for_peers([&](int peer) {
      const Post& post = posts_[static_cast<size_t>(peer)];
      if (bytes == 0) return;
      from[static_cast<size_t>(peer)] =
          post.offset == kStaged ? await_piece(call, peer, index) + static_cast<size_t>(rank) * most
                                 : member_.peer(peer).arena() + post.offset + mine.begin + at;
    });
    from[static_cast<size_t>(rank)] = own + mine.begin + at;
    if (bytes > 0) take(at, bytes, from);
    for_peers([&](int peer) {
      if (posts_[static_cast<size_t>(peer)].offset == kStaged) have_read(peer, index);
    });
  }
  return index;
}

void Collectives::spread(const Call& call, const char* own, const std::vector<size_t>& bytes,
                         uint32_t first_piece, const std::function<const char*(int peer)>& from_arena,
                         const TakeWhole& take) {
  const size_t own_bytes = bytes[static_cast<size_t>(member_.rank())];
  const size_t most = Slot::stage_bytes(member_.size());
  size_t longest = 0;
  for (const size_t each : bytes) longest = std::max(longest, each);
  const auto fill = [&](size_t at) {
    stage(call, [&](char* to) { std::memcpy(to, own + at, std::min(most, own_bytes - at)); });
  };
  if (is_staged() && own_bytes > 0) fill(0);
  if (first_piece == 0) await_posts(call);
  const auto is_peer_staged = [&](int peer) { return posts_[static_cast<size_t>(peer)].offset == kStaged; };
  uint32_t index = first_piece;
  for (size_t at = 0; at < longest; at += most, ++index) {
    if (is_staged() && at + most < own_bytes) fill(at + most);
    for_peers([&](int peer) {
      const size_t all = bytes[static_cast<size_t>(peer)];
      if (!is_peer_staged(peer) || at >= all) return;
      take(peer, at, std::min(most, all - at), await_piece(call, peer, index));
      have_read(peer, index);
    });
  }
  for_peers([&](int peer) {
    const size_t all = bytes[static_cast<size_t>(peer)];
    if (is_peer_staged(peer) || all == 0) return;
    const char* const from = from_arena(peer);
    for (size_t at = 0; at < all; at += kMostAtOnce) {
      const size_t length = std::min(kMostAtOnce, all - at);
      take(peer, at, length, from + at);
      note_read(peer, from + at, length);
    }
  });
}

void Collectives::barrier(const Call& call) {
  begin(call, nullptr, 0, true);
  await_posts(call);
  end(call);
}

void Collectives::all_reduce_small(const Call& call, void* data, size_t bytes, const Reduction& reduction) {
  begin(call, data, bytes, true);
  stage(call, [&](char* to) { std::memcpy(to, data, bytes); });
  await_posts(call);
  const auto size = static_cast<size_t>(member_.size());
  std::vector<const void*> terms(size, data);
  for_peers([&](int peer) { terms[static_cast<size_t>(peer)] = await_piece(call, peer, 0); });
  kernels::combine(reduction.op, reduction.type, data, terms,
                   static_cast<int64_t>(bytes) / kernels::size_of(reduction.type));
  for_peers([&](int peer) { have_read(peer, 0); });
  end(call);
}

void Collectives::all_reduce(const Call& call, void* data, size_t bytes, const Reduction& reduction) {
  const int size = member_.size(), rank = member_.rank();
  if (bytes <= kAlwaysStaged && bytes * static_cast<size_t>(size) <= kMostSummedByAll)
    return all_reduce_small(call, data, bytes, reduction);
  const auto element = static_cast<size_t>(kernels::size_of(reduction.type));
  const auto ranges = equal_ranges(bytes, element, size);
  const ByteRange mine = ranges[static_cast<size_t>(rank)];
  auto* const flat = static_cast<char*>(data);
  begin(call, data, bytes, false);
  const uint32_t num_pieces =
      scatter(call, data, ranges, [&](size_t at, size_t length, const std::vector<const char*>& from) {
        const std::vector<const void*> terms(from.begin(), from.end());
        kernels::combine(reduction.op, reduction.type, flat + mine.begin + at, terms,
                         static_cast<int64_t>(length / element));
      });
  member_.own().reduced.advance(number_);
  std::vector<size_t> lengths;
  for (const ByteRange& range : ranges) lengths.push_back(range.bytes());
  const auto from_arena = [&](int peer) {
    member_.wait(member_.slot().of(peer).reduced, number_, number_, call.deadline);
    return member_.peer(peer).arena() + posts_[static_cast<size_t>(peer)].offset +
           ranges[static_cast<size_t>(peer)].begin;
  };
  // Once a range's owner has set `reduced` or staged its sums, it no longer reads this rank's input there.
  spread(call, flat + mine.begin, lengths, num_pieces, from_arena,
         [&](int peer, size_t at, size_t length, const char* from) {
           kernels::copy(flat + ranges[static_cast<size_t>(peer)].begin + at, from, length, stores_of(bytes));
         });
  end(call);
}

void Collectives::reduce(const Call& call, void* output, const void* input, size_t bytes,
                         const std::vector<ByteRange>& ranges, const Reduction& reduction) {
  const auto element = static_cast<int64_t>(kernels::size_of(reduction.type));
  begin(call, input, bytes, false);
  scatter(call, input, ranges, [&](size_t at, size_t length, const std::vector<const char*>& from) {
    const std::vector<const void*> terms(from.begin(), from.end());
    kernels::combine(reduction.op, reduction.type, static_cast<char*>(output) + at, terms,
                     static_cast<int64_t>(length) / element, stores_of(bytes), reduction.factor);
  });
  end(call);
}

void Collectives::all_gather(const Call& call, void* output, const void* input, size_t bytes) {
  auto* const whole = static_cast<char*>(output);
  const auto place = [&](int rank) { return whole + static_cast<size_t>(rank) * bytes; };
  char* const own = place(member_.rank());
  if (own != input) std::memcpy(own, input, bytes);
  // Post the copy in the output: it may lie in the arena even if the input does not.
  begin(call, own, bytes, false);
  const kernels::Stores stores = stores_of(bytes * static_cast<size_t>(member_.size()));
  spread(
      call, own, std::vector<size_t>(static_cast<size_t>(member_.size()), bytes), 0,
      [&](int peer) { return member_.peer(peer).arena() + posts_[static_cast<size_t>(peer)].offset; },
      [&](int peer, size_t at, size_t length, const char* from) {
        kernels::copy(place(peer) + at, from, length, stores);
      });
  end(call);
}

void Collectives::broadcast(const Call& call, void* data, size_t bytes, int root) {
  std::vector<size_t> lengths(static_cast<size_t>(member_.size()));
  lengths[static_cast<size_t>(root)] = bytes;
  begin(call, data, bytes, member_.rank() != root);
  spread(
      call, static_cast<const char*>(data), lengths, 0,
      [&](int peer) { return member_.peer(peer).arena() + posts_[static_cast<size_t>(peer)].offset; },
      [&](int, size_t at, size_t length, const char* from) {
        kernels::copy(static_cast<char*>(data) + at, from, length, stores_of(bytes));
      });
  end(call);
}

void Collectives::all_to_all(const Call& call, void* output, const void* input, size_t bytes) {
  const auto size = static_cast<size_t>(member_.size());
  auto* const whole = static_cast<char*>(output);
  std::vector<ByteRange> ranges;
  for (size_t rank = 0; rank < size; ++rank) ranges.push_back({rank * bytes, (rank + 1) * bytes});
  begin(call, input, bytes * size, false);
  scatter(call, input, ranges, [&](size_t at, size_t length, const std::vector<const char*>& from) {
    for (size_t rank = 0; rank < size; ++rank)
      kernels::copy(whole + rank * bytes + at, from[rank], length, stores_of(bytes * size));
  });
  end(call);
}

}  // namespace deepspeed::comm::shm
