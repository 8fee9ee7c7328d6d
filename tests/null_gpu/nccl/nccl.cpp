// NCCL's functions over communicators of shared memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>
#include <unistd.h>

#include "tests/null_gpu/nccl/communicator.h"
#include "tests/null_gpu/nccl/numbers.h"
#include "tests/null_gpu/runtime/hooks.h"

using namespace null_gpu;
using Held = std::shared_ptr<Communicator>;

namespace {

// Handles are never given back: an operation may still use one after its end.
Held& communicator_of(ncclComm_t handle) { return *reinterpret_cast<Held*>(handle); }

void say(const Communicator& communicator, const char* what, int number) {
  static const bool is_asked = std::getenv("NULL_NCCL_LOG") != nullptr;
  if (!is_asked && number == 0) return;
  std::fprintf(stderr,
               "[null nccl] process %d: %s of communicator %.8s of %d ranks, %d operations had not ended\n",
               ::getpid(), what, communicator.id().c_str(), communicator.size(), number);
}

struct Operation {
  Held communicator;
  cudaStream_t stream = nullptr;
  std::function<bool()> work;                    // of a collective
  std::optional<Communicator::Message> message;  // else
};

thread_local int group_depth = 0;
thread_local std::vector<Operation> group;

/// Gives a stream the operations of a group: messages move together, collectives one after the other.
ncclResult_t give(cudaStream_t stream, std::vector<Operation> operations) {
  for (const Operation& operation : operations) operation.communicator->begin_operation();
  const auto work = [operations = std::move(operations)] {
    std::map<Communicator*, std::vector<Communicator::Message>> messages;
    for (const Operation& operation : operations)
      if (operation.message) messages[operation.communicator.get()].push_back(*operation.message);
    for (auto& [communicator, of_it] : messages) communicator->exchange(std::move(of_it));
    for (const Operation& operation : operations) {
      if (operation.work) operation.work();
      operation.communicator->end_operation();
    }
  };
  return give_blocking_work(stream, work) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t start(Operation operation, const char* name) {
  null_gpu_count(name);
  if (operation.communicator->is_aborted()) return ncclInvalidUsage;
  group.push_back(std::move(operation));
  if (group_depth > 0) return ncclSuccess;
  const cudaStream_t stream = group.front().stream;
  return give(stream, std::exchange(group, {}));
}

uint64_t kind_of(const char* name, ncclDataType_t type, int operation) {
  return std::hash<std::string>()(name) * 4096 + size_t(type) * 64 + size_t(operation);
}

/// Copies what a rank has shared to where it belongs, unless it lies there.
void place(char* to, const char* from, size_t bytes) { std::memmove(to, from, bytes); }

ncclResult_t collective(const char* name, ncclComm_t handle, cudaStream_t stream, uint64_t kind,
                        const void* data, size_t bytes, Communicator::Take take,
                        std::function<void()> finish = {}) {
  const Held communicator = communicator_of(handle);
  return start({communicator,
                stream,
                [=] {
                  const bool is_whole =
                      communicator->share(kind, static_cast<const char*>(data), bytes, take);
                  if (is_whole && finish) finish();
                  return is_whole;
                },
                {}},
               name);
}

/// The reduction over all ranks of numbers [first, first + count); only those are written to `to`.
ncclResult_t reduction(const char* name, ncclComm_t handle, cudaStream_t stream, const void* from, size_t all,
                       char* to, size_t first, size_t count, ncclDataType_t type, ncclRedOp_t operation) {
  const size_t width = bytes_of(type);
  const int size = communicator_of(handle)->size();
  const auto result = std::make_shared<std::vector<char>>(to != nullptr ? count * width : 0);
  const auto take = [=](int rank, const char* data, size_t offset, size_t bytes) {
    if (to == nullptr) return;
    const size_t begin = std::max(offset, first * width),
                 end = std::min(offset + bytes, (first + count) * width);
    if (begin >= end) return;
    char* const into = result->data() + begin - first * width;
    const char* const with = data + (begin - offset);
    if (rank == 0) {
      place(into, with, end - begin);
    } else {
      combine(into, with, (end - begin) / width, type, operation);
    }
  };
  const auto finish = [=] {
    if (to == nullptr) return;
    if (operation == ncclAvg) divide(result->data(), count, type, size);
    place(to, result->data(), count * width);
  };
  return collective(name, handle, stream, kind_of(name, type, int(operation)), from, all * width, take,
                    finish);
}

ncclResult_t from_root(const char* name, ncclComm_t handle, cudaStream_t stream, const void* from, void* to,
                       size_t bytes, int root) {
  const bool is_root = communicator_of(handle)->rank() == root;
  const auto take = [=](int rank, const char* data, size_t offset, size_t size) {
    if (rank == root && to != nullptr) place(static_cast<char*>(to) + offset, data, size);
  };
  return collective(name, handle, stream, kind_of("broadcast", ncclInt8, root), is_root ? from : nullptr,
                    bytes, take);
}

ncclResult_t message(const char* name, ncclComm_t handle, cudaStream_t stream, bool is_send, int peer,
                     void* data, size_t bytes) {
  return start({communicator_of(handle),
                stream,
                {},
                Communicator::Message{is_send, peer, static_cast<char*>(data), bytes}},
               name);
}

ncclResult_t make(ncclComm_t* made, int size, const ncclUniqueId& id, int rank) {
  null_gpu_count("nccl communicators");
  auto communicator = std::make_shared<Communicator>(id.internal, rank, size);
  *made = reinterpret_cast<ncclComm_t>(new Held(std::move(communicator)));
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "%08x%08x", random(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* made, int size, ncclUniqueId id, int rank) {
  return make(made, size, id, rank);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  return make(made, size, id, rank);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* made, int size, int rank, int, ncclUniqueId* id,
                                      ncclConfig_t*) {
  return make(made, size, *id, rank);
}
ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  Communicator& whole = *communicator_of(handle);
  const std::string id = whole.id_of_split();
  struct Place {
    int color, key, rank;
  };
  std::vector<Place> places(size_t(whole.size()));
  const Place own{color, key, whole.rank()};
  Communicator(id, whole.rank(), whole.size())
      .share(1, reinterpret_cast<const char*>(&own), sizeof own,
             [&](int rank, const char* data, size_t, size_t bytes) {
               std::memcpy(&places[size_t(rank)], data, bytes);
             });
  *made = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  std::erase_if(places, [&](const Place& place) { return place.color != color; });
  std::ranges::sort(places, {}, [](const Place& place) { return std::pair(place.key, place.rank); });
  const auto rank = std::ranges::find(places, whole.rank(), &Place::rank) - places.begin();
  ncclUniqueId of_color = {};
  std::snprintf(of_color.internal, sizeof of_color.internal, "%s.%d", id.c_str(), color);
  return make(made, int(places.size()), of_color, int(rank));
}
ncclResult_t ncclCommInitAll(ncclComm_t*, int, const int*) { return ncclInvalidUsage; }

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  Communicator& communicator = *communicator_of(handle);
  say(communicator, "finalize", 0);
  communicator.finish();
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  say(*communicator_of(handle), "destroy", 0);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  Communicator& communicator = *communicator_of(handle);
  say(communicator, "abort", communicator.abort());
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t handle, int* size) {
  *size = communicator_of(handle)->size();
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  *rank = communicator_of(handle)->rank();
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t error) {
  return error == ncclSuccess ? "no error" : "an error of the null NCCL";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  std::map<cudaStream_t, std::vector<Operation>> by_stream;
  for (Operation& operation : std::exchange(group, {}))
    by_stream[operation.stream].push_back(std::move(operation));
  for (auto& [stream, operations] : by_stream) {
    if (const auto error = give(stream, std::move(operations))) return error;
  }
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t handle,
                           cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  const auto take = [=](int rank, const char* data, size_t offset, size_t size) {
    place(static_cast<char*>(to) + size_t(rank) * bytes + offset, data, size);
  };
  return collective("ncclAllGather", handle, stream, kind_of("ncclAllGather", type, 0), from, bytes, take);
}
ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t handle,
                          cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  const Communicator& communicator = *communicator_of(handle);
  const size_t own = size_t(communicator.rank()) * bytes;
  const auto take = [=](int rank, const char* data, size_t offset, size_t size) {
    const size_t begin = std::max(offset, own), end = std::min(offset + size, own + bytes);
    if (begin < end)
      place(static_cast<char*>(to) + size_t(rank) * bytes + begin - own, data + begin - offset, end - begin);
  };
  return collective("ncclAlltoAll", handle, stream, kind_of("ncclAlltoAll", type, 0), from,
                    bytes * size_t(communicator.size()), take);
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t handle, cudaStream_t stream) {
  return reduction("ncclAllReduce", handle, stream, from, count, static_cast<char*>(to), 0, count, type,
                   operation);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t handle, cudaStream_t stream) {
  const Communicator& communicator = *communicator_of(handle);
  return reduction("ncclReduceScatter", handle, stream, from, count * size_t(communicator.size()),
                   static_cast<char*>(to), count * size_t(communicator.rank()), count, type, operation);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t handle, cudaStream_t stream) {
  char* const result = communicator_of(handle)->rank() == root ? static_cast<char*>(to) : nullptr;
  return reduction("ncclReduce", handle, stream, from, count, result, 0, count, type, operation);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t handle, cudaStream_t stream) {
  return from_root("ncclBroadcast", handle, stream, from, to, count * bytes_of(type), root);
}
ncclResult_t ncclBcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t handle,
                       cudaStream_t stream) {
  return from_root("ncclBcast", handle, stream, data, data, count * bytes_of(type), root);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  return message("ncclSend", handle, stream, true, peer, const_cast<void*>(data), count * bytes_of(type));
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  return message("ncclRecv", handle, stream, false, peer, data, count * bytes_of(type));
}
}
