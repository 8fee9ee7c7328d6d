#include "deepspeed/comm/job/agreed_links.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/text.h"

namespace deepspeed::comm {
namespace {

constexpr const char* kLinksVariable = "DEEPSPEED_LINKS";
constexpr const char* kLinksKey = "links";
constexpr const char* kRefusedKey = "links/refused";  // counts the ranks that have read the error
// How long rank 0, whose end removes the store, waits for them before it throws its own error.
constexpr std::chrono::seconds kMostToRefuse{5};

Json own_links(const Job& job, const std::string& path) {
  return {{"figures", link_figures_json(read_link_figures(path))},
          {"ranks_per_node", env::get_int("DEEPSPEED_RANKS_PER_NODE").value_or(job.local_size)}};
}

void set_json(c10d::Store& store, const Json& value) {
  const std::string text = value.dump();
  store.set(kLinksKey, std::vector<uint8_t>(text.begin(), text.end()));
}

/// Tells the other ranks why there are no figures. Waits up to five seconds until they have read it.
void refuse_links(const Job& job, c10d::Store& store, const std::string& reason) {
  set_json(store, {{"error", reason}});
  const auto end = std::chrono::steady_clock::now() + kMostToRefuse;
  while (store.add(kRefusedKey, 0) < job.world_size - 1 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

/// Returns rank 0's figures and ranks per node. The object is empty if rank 0's variable is not set. On other
/// ranks it has "error" if rank 0 cannot read its file.
Json links_of_rank_0(const Job& job, c10d::Store& store) {
  const auto path = env::get(kLinksVariable);
  if (job.rank != 0) {
    const auto bytes = store.get(kLinksKey);
    auto links = Json::parse(std::string(bytes.begin(), bytes.end()));
    if (links.contains("error")) store.add(kRefusedKey, 1);
    return links;
  }
  Json links = Json::object();
  try {
    if (path) links = own_links(job, *path);
  } catch (const Error& error) {
    refuse_links(job, store, error.what());
    throw;
  }
  set_json(store, links);
  return links;
}

/// Logs on ranks other than 0 if their own variable has different figures.
void tell_difference(const Job& job, const Json& links) {
  const auto path = env::get(kLinksVariable);
  if (!path) return;
  std::string difference = "has other figures, or nodes of another size";
  try {
    if (own_links(job, *path) == links) return;
  } catch (const Error& error) {
    difference = std::string("cannot be used (") + error.what() + ")";
  }
  log::warning("[comm] the file of ", kLinksVariable, ", ", *path, ", ", difference, " on rank ", job.rank,
               "; what rank 0 has counts on all ranks");
}

}  // namespace

void agree_on_links(Job& job, c10d::Store& store) {
  Json links;
  try {
    links = links_of_rank_0(job, store);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    raise<CommError>("rank ", job.rank, " of ", job.world_size, " could not hear from rank 0 how fast the ",
                     "job's links are: ", first_line(error.what()));
  }
  if (links.contains("error"))
    raise<UsageError>(kLinksVariable, " of rank 0: ", links["error"].get<std::string>());
  if (job.rank != 0) tell_difference(job, links);
  if (links.empty()) return;
  job.links = link_figures_of(links["figures"], kLinksVariable);
  job.ranks_per_node = links["ranks_per_node"].get<int>();
}

}  // namespace deepspeed::comm
