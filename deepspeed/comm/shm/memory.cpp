#include "deepspeed/comm/shm/memory.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/integers.h"

namespace deepspeed::comm::shm {
namespace {

// These keep the size fixed. If the memory could shrink, a read beyond its end would raise SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Throws if the size exceeds RLIMIT_FSIZE: the system would not refuse, but raise SIGXFSZ.
void refuse_beyond_file_limit(size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur)
    return;
  raise<CommError>("the limit on the size of a file (RLIMIT_FSIZE) is ", limit.rlim_cur, " bytes, expected ",
                   bytes, " or more");
}

struct MappingRegistry {
  std::mutex mutex;
  // The key is process, device, inode and use. The process is in it because a child must not reuse its
  // parent's mapping.
  std::map<std::tuple<pid_t, dev_t, ino_t, MappingUse>, std::weak_ptr<Mapping>> mappings;
};

MappingRegistry& mapping_registry() {
  static auto& instance = *new MappingRegistry;  // threads may outlive the statics
  return instance;
}

}  // namespace

Mapping::~Mapping() { device::release_addresses(addresses_); }

Descriptor make_memory(size_t bytes) {
  refuse_beyond_file_limit(bytes);
  Descriptor memory(::memfd_create("deepspeed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) raise<CommError>("memfd_create: ", std::strerror(errno));
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    raise<CommError>("ftruncate to ", bytes, " bytes of shared memory: ", std::strerror(errno));
  // This keeps a read-only descriptor from being reopened for writing, even by this user.
  if (::fchmod(memory.get(), S_IRUSR) != 0) raise<CommError>("fchmod: ", std::strerror(errno));
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
    raise<CommError>("shared memory cannot be sealed: ", std::strerror(errno));
  return memory;
}

Descriptor for_reading(const Descriptor& memory) {
  const std::string path = "/proc/self/fd/" + std::to_string(memory.get());
  Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) raise<CommError>("cannot open ", path, " for reading: ", std::strerror(errno));
  return opened;
}

bool add_pages(const Descriptor& memory, size_t begin, size_t bytes) {
  int result = 0;
  do {
    result =
        ::fallocate(memory.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void add_huge_pages(const Descriptor& memory, const Mapping& mapping, size_t begin, size_t bytes) {
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;  // the number of Linux 6.1, which older C libraries do not name
#endif
  const size_t first = round_up(begin, device::kHugePage);
  const size_t last = (begin + bytes) / device::kHugePage * device::kHugePage;
  if (first >= last) return;
  // The system makes a huge page only from a range that already has a page.
  for (size_t page = first; page < last; page += device::kHugePage) {
    if (!add_pages(memory, page, 1)) return;
  }
  ::madvise(mapping.data() + first, last - first, kCollapse);
}

void drop_pages(const Descriptor& memory, size_t begin, size_t bytes) {
  // If the system refuses, the pages stay and are reused.
  static_cast<void>(::fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(begin), static_cast<off_t>(bytes)));
}

std::shared_ptr<Mapping> map_memory(const Descriptor& memory, size_t bytes, MappingUse use) {
  // Checked first: with the seals, the size below cannot change.
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    raise<CommError>("shared memory came without the seals that keep its size");
  struct stat status {};
  if (::fstat(memory.get(), &status) != 0) raise<CommError>("fstat: ", std::strerror(errno));
  if (static_cast<size_t>(status.st_size) < bytes)
    raise<CommError>("shared memory has ", status.st_size, " bytes, expected ", bytes);
  auto& registry = mapping_registry();
  const std::lock_guard lock(registry.mutex);
  std::erase_if(registry.mappings, [](const auto& entry) { return entry.second.expired(); });
  if (use == MappingUse::kPeer) {  // the peer may be a thread of this process
    const auto own = registry.mappings.find({::getpid(), status.st_dev, status.st_ino, MappingUse::kOwn});
    if (own != registry.mappings.end()) {
      if (auto mapping = own->second.lock()) return mapping;
    }
  }
  auto& known = registry.mappings[{::getpid(), status.st_dev, status.st_ino, use}];
  if (auto mapping = known.lock()) return mapping;
  const int access = use == MappingUse::kPeer ? PROT_READ : PROT_READ | PROT_WRITE;
  const device::Addresses addresses = device::reserve_addresses(bytes, device::kHugePage);
  if (addresses.bytes < bytes) {
    device::release_addresses(addresses);
    raise<CommError>("no range of ", bytes, " addresses is free");
  }
  void* const data =
      ::mmap(addresses.data, bytes, access, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, memory.get(), 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    device::release_addresses(addresses);
    raise<CommError>("mmap of ", bytes, " bytes: ", std::strerror(error));
  }
  if (use == MappingUse::kCommon) ::madvise(data, bytes, MADV_DONTFORK);
  ::madvise(data, bytes, MADV_HUGEPAGE);  // without effect unless the system's shmem_enabled allows it
  auto mapping = std::make_shared<Mapping>(addresses, bytes);
  known = mapping;
  return mapping;
}

}  // namespace deepspeed::comm::shm
