// Implements the functions of deepspeed.comm by calls of a group.
//
// Each uses the given group or the world's, and converts global ranks to ranks in the group. It starts the
// group's operation, and waits for it unless async_op is set. reduce() is a reduction to one owner. Objects
// are sent as CBOR.
#include "deepspeed/comm/functions.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/coalesced.h"
#include "deepspeed/comm/group/joined_work.h"
#include "deepspeed/comm/group_arguments.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/log/comms_logger.h"

namespace deepspeed::comm {
namespace {

std::string to_text(const Json& object) {
  const auto bytes = Json::to_cbor(object);
  return {bytes.begin(), bytes.end()};
}

Json from_text(const std::string& text) { return Json::from_cbor(text); }

}  // namespace

bool is_available() { return true; }

int get_rank(const ProcessGroup& group) { return or_world(group).rank(); }
int get_world_size(const ProcessGroup& group) { return or_world(group).size(); }
int get_local_rank() { return world().local_rank(); }

int get_global_rank(const ProcessGroup& group, int group_rank) {
  const ProcessGroup whole = or_world(group);
  const auto& ranks = whole.global_ranks();
  if (group_rank < 0 || group_rank >= static_cast<int>(ranks.size())) {
    raise<UsageError>("get_global_rank: rank ", group_rank, " of a group of ", ranks.size());
  }
  return ranks[group_rank];
}

std::vector<int> get_all_ranks_from_group(const ProcessGroup& group) {
  return or_world(group).global_ranks();
}

ProcessGroup get_world_group() { return world().group(); }

ProcessGroup new_group(const std::vector<int>& ranks) {
  std::string name = "ranks";
  for (const int rank : ranks) name += "_" + std::to_string(rank);
  return world().new_group(ranks, name);
}

Mesh initialize_mesh_device(const std::vector<int>& mesh_shape,
                            const std::vector<std::string>& mesh_dim_names) {
  if (mesh_shape.size() != mesh_dim_names.size()) {
    raise<UsageError>("initialize_mesh_device: mesh_shape has ", mesh_shape.size(),
                      " sizes and mesh_dim_names ", mesh_dim_names.size(),
                      " names, expected one of each an axis");
  }
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < mesh_shape.size(); ++i) axes.push_back({mesh_dim_names[i], mesh_shape[i]});
  return Mesh(world(), std::move(axes));
}

Work all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group, bool async_op) {
  return finish_unless_async(or_world(group).start_all_reduce(tensor, op), async_op);
}

Work inference_all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group, bool async_op) {
  return all_reduce(tensor, op, group, async_op);
}

Work all_reduce_coalesced(const std::vector<at::Tensor>& tensors, ReduceOp op, const ProcessGroup& group,
                          bool async_op) {
  return finish_unless_async(start_all_reduce_coalesced(or_world(group), tensors, op), async_op);
}

Work reduce(const at::Tensor& tensor, int dst, ReduceOp op, const ProcessGroup& group, bool async_op) {
  const auto chosen = or_world(group);
  const int root = rank_in(chosen, "reduce", "dst", dst);
  if (op != ReduceOp::kSum) return finish_unless_async(chosen.start_all_reduce(tensor, op), async_op);
  std::vector<Interval> owned(chosen.size());
  owned[root] = {0, tensor.defined() ? tensor.numel() : 0};
  return finish_unless_async(chosen.start_reduce_to_owners(tensor, owned), async_op);
}

Work broadcast(const at::Tensor& tensor, int src, const ProcessGroup& group, bool async_op) {
  const auto chosen = or_world(group);
  return finish_unless_async(chosen.start_broadcast(tensor, rank_in(chosen, "broadcast", "src", src)),
                             async_op);
}

Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                            bool async_op) {
  return finish_unless_async(or_world(group).start_all_gather(output, input), async_op);
}

Work allgather_fn(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                  bool async_op) {
  return all_gather_into_tensor(output, input, group, async_op);
}

Work all_gather_coalesced(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                          const ProcessGroup& group, bool async_op) {
  const auto chosen = or_world(group);
  if (outputs.size() != inputs.size()) {
    raise<UsageError>("all_gather_coalesced: ", outputs.size(), " outputs for ", inputs.size(),
                      " inputs, expected one each");
  }
  std::vector<Work> works;
  for (size_t i = 0; i < inputs.size(); ++i) works.push_back(chosen.start_all_gather(outputs[i], inputs[i]));
  return finish_unless_async(joined_work(std::move(works), nullptr), async_op);
}

Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                           const ProcessGroup& group, bool async_op) {
  return finish_unless_async(or_world(group).start_reduce_scatter(output, input, op), async_op);
}

Work reduce_scatter_fn(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                       const ProcessGroup& group, bool async_op) {
  return reduce_scatter_tensor(output, input, op, group, async_op);
}

bool has_all_gather_into_tensor() { return true; }
bool has_reduce_scatter_tensor() { return true; }

Work isend(const at::Tensor& tensor, int dst, const ProcessGroup& group, int tag) {
  const auto chosen = or_world(group);
  return chosen.start_send(tensor, rank_in(chosen, "isend", "dst", dst), tag);
}

Work irecv(const at::Tensor& tensor, int src, const ProcessGroup& group, int tag) {
  const auto chosen = or_world(group);
  return chosen.start_recv(tensor, rank_in(chosen, "irecv", "src", src), tag);
}

void send(const at::Tensor& tensor, int dst, const ProcessGroup& group, int tag) {
  const auto chosen = or_world(group);
  chosen.send(tensor, rank_in(chosen, "send", "dst", dst), tag);
}

void recv(const at::Tensor& tensor, int src, const ProcessGroup& group, int tag) {
  const auto chosen = or_world(group);
  chosen.recv(tensor, rank_in(chosen, "recv", "src", src), tag);
}

Work barrier(const ProcessGroup& group, bool async_op) {
  return finish_unless_async(or_world(group).start_barrier(), async_op);
}

void monitored_barrier(const ProcessGroup& group, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  or_world(group).monitored_barrier(timeout, wait_all_ranks);
}

void broadcast_object_list(std::vector<Json>& objects, int src, const ProcessGroup& group) {
  const auto chosen = or_world(group);
  const int root = rank_in(chosen, "broadcast_object_list", "src", src);
  const auto received = from_text(chosen.broadcast_text(to_text(Json(objects)), root));
  objects = received.get<std::vector<Json>>();
}

std::vector<Json> all_gather_object(const Json& object, const ProcessGroup& group) {
  std::vector<Json> objects;
  for (const auto& text : or_world(group).all_gather_text(to_text(object)))
    objects.push_back(from_text(text));
  return objects;
}

double all_reduce_scalar(double value, ReduceOp op, const ProcessGroup& group) {
  return or_world(group).all_reduce_scalar(value, op);
}

std::vector<double> all_gather_scalar(double value, const ProcessGroup& group) {
  return or_world(group).all_gather_scalar(value);
}

std::string log_summary(bool show_straggler) {
  const bool has_world = is_initialized();
  const CommsLogger& logger = CommsLogger::instance();
  std::string text = logger.summary(show_straggler && has_world ? world().group() : ProcessGroup());
  if (!logger.is_on() && logger.records().empty())
    text += "nothing was logged: comms_logger.enabled of the config, or CommsLogger::start(), turns it on\n";
  if (!has_world || world().rank() == 0) log::info("communication\n", text);
  return text;
}

Mesh::Mesh(const World& world, std::vector<MeshAxis> axes) : Mesh(world, ProcessGroup(), std::move(axes)) {}

Mesh::Mesh(const World& world, const ProcessGroup& all, std::vector<MeshAxis> axes)
    : world_(world), topology_(std::move(axes)) {
  if (topology_.world_size() != world_.size()) {
    std::string product;
    for (const auto& axis : topology_.axes()) {
      product += message(product.empty() ? "" : " x ", axis.name, " ", axis.size);
    }
    raise<UsageError>("the axes ", product, " make ", topology_.world_size(), " ranks, expected the ",
                      world_.size(), " of the world");
  }
  for (const auto& axis : topology_.axes()) {
    const bool has_all = all && axis.size == world_.size();
    groups_[axis.name] = has_all ? all : new_group({axis.name});
  }
}

const ProcessGroup& Mesh::group(const std::string& axis) const {
  topology_.axis_size(axis);  // throws if there is no such axis
  return groups_.at(axis);
}

int Mesh::coordinate(const std::string& axis) const { return topology_.coordinate(world_.rank(), axis); }

ProcessGroup Mesh::new_group(const std::vector<std::string>& axes) const {
  std::string name;
  for (const auto& axis : axes) name += (name.empty() ? "" : "+") + axis;
  ProcessGroup own;
  // Every rank names all groups, in the same order, as World::new_group() requires.
  for (const auto& ranks : topology_.groups(axes)) {
    if (const auto group = world_.new_group(ranks, name)) own = group;
  }
  return own;
}

}  // namespace deepspeed::comm
