#include "deepspeed/comm/coalesced.h"

#include <functional>
#include <map>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/joined_work.h"

namespace deepspeed::comm {
namespace {

using Piece = std::vector<at::Tensor>;

// Packs tensors into pieces of one dtype and device. Their order depends only on the list, so it is the same
// on all ranks.
std::vector<Piece> pack(const std::vector<at::Tensor>& tensors, int64_t piece_bytes) {
  if (piece_bytes < 1) {
    raise<UsageError>("a piece of ", piece_bytes, " bytes, expected 1 or more");
  }
  struct Open {
    size_t piece;
    int64_t bytes;
  };
  std::vector<Piece> pieces;
  std::map<std::pair<at::ScalarType, std::string>, Open> open;
  for (const auto& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    const auto key = std::make_pair(tensor.scalar_type(), tensor.device().str());
    const auto found = open.find(key);
    if (found == open.end() || found->second.bytes + bytes > piece_bytes) {
      pieces.emplace_back();
      open[key] = {pieces.size() - 1, 0};
    }
    auto& current = open[key];
    pieces[current.piece].push_back(tensor.detach());
    current.bytes += bytes;
  }
  return pieces;
}

// Calls `visit(tensor, its place in flat)` for every tensor of the piece.
void visit_places(const Piece& piece, const at::Tensor& flat,
                  const std::function<void(const at::Tensor&, const at::Tensor&)>& visit) {
  int64_t begin = 0;
  for (const auto& tensor : piece) {
    visit(tensor, flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

at::Tensor flatten(const Piece& piece) {
  int64_t numel = 0;
  for (const auto& tensor : piece) numel += tensor.numel();
  const auto flat = at::empty({numel}, piece.front().options());
  visit_places(piece, flat, [](const at::Tensor& tensor, const at::Tensor& place) { place.copy_(tensor); });
  return flat;
}

// Returns the tensor to send for a piece. A single tensor is sent directly if it is contiguous.
at::Tensor flat_of(const Piece& piece) {
  return piece.size() == 1 && piece.front().is_contiguous() ? piece.front() : flatten(piece);
}

void put_back(const Piece& piece, const at::Tensor& flat) {
  if (flat.const_data_ptr() == piece.front().const_data_ptr()) return;
  visit_places(piece, flat, [](const at::Tensor& to, const at::Tensor& from) { to.copy_(from); });
}

}  // namespace

Work start_all_reduce_coalesced(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                                ReduceOp op, int64_t piece_bytes) {
  const c10::NoGradGuard no_grad;
  std::vector<std::pair<Piece, at::Tensor>> under_way;
  std::vector<Work> works;
  for (const auto& piece : pack(tensors, piece_bytes)) {
    const auto flat = flat_of(piece);
    works.push_back(group.start_all_reduce(flat, op));
    under_way.emplace_back(piece, flat);
  }
  return joined_work(std::move(works), [under_way = std::move(under_way)] {
    for (const auto& [piece, flat] : under_way) put_back(piece, flat);
  });
}

}  // namespace deepspeed::comm
