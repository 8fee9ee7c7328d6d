// Each rank records its process in the store, and its absence when it leaves. A waiting rank reads the
// records of missing ranks and inspects the processes on its own machine. A rank whose process has ended will
// not come; a stopped one is named.
#include "deepspeed/comm/group/absent_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "deepspeed/base/message.h"
#include "deepspeed/comm/group/store_polling.h"

namespace deepspeed::comm {
namespace {

constexpr const char* kCount = "absent/count";

std::string absent_key(int rank) { return "absent/" + std::to_string(rank); }
std::string process_key(int rank) { return "process/" + std::to_string(rank); }

/// Returns a text that is equal for processes that see the same process ids. They share a boot of a machine
/// and a container.
std::string own_processes() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code none;
  return boot + "/" + std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

/// Returns the fields of `path`/stat that follow the process's or thread's name, which may contain anything.
/// Returns no fields if the process or thread has ended.
std::vector<std::string> words_of(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path + "/stat"), line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  std::vector<std::string> words;
  for (std::string word; rest >> word;) words.push_back(word);
  return words;
}

std::string path_of(int64_t process) { return "/proc/" + std::to_string(process); }

/// Returns when a process began, in clock ticks since boot, from its words_of(). Returns nothing if it has
/// ended.
std::optional<std::string> begin_in(const std::vector<std::string>& words) {
  constexpr size_t kBegin = 19;
  if (words.size() <= kBegin || words[0] == "Z" || words[0] == "X") return std::nullopt;
  return words[kBegin];
}

std::set<int64_t> hung_threads_of(int64_t process) {
  std::set<int64_t> hung;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(path_of(process) + "/task", none)) {
    const auto words = words_of(entry.path().string());
    if (!words.empty() && words[0] == "D") hung.insert(std::atoll(entry.path().filename().c_str()));
  }
  return hung;
}

}  // namespace

void note_presence(c10d::Store& store, int rank) {
  const auto process = find_process(::getpid()).value_or(RankProcess{::getpid(), ""});
  store.set(process_key(rank), message(own_processes(), "\n", process.number, "\n", process.begin, "\n"));
}

void note_absence(c10d::Store& store, int rank, const std::string& why) {
  store.set(absent_key(rank), why);
  store.add(kCount, 1);
}

std::optional<RankProcess> find_process(int64_t number) {
  const auto begin = begin_in(words_of(path_of(number)));
  return begin ? std::optional(RankProcess{number, *begin}) : std::nullopt;
}

Motion motion_of(const RankProcess& process) {
  Motion motion;
  const auto words = words_of(path_of(process.number));
  motion.has_ended = begin_in(words) != process.begin;
  if (motion.has_ended) return motion;
  if (words[0] == "T" || words[0] == "t") {
    motion.stopped = words[0].front();
  } else {
    motion.hung_threads = hung_threads_of(process.number);
  }
  return motion;
}

std::optional<RankProcess> read_process(c10d::Store& store, int rank) {
  const auto mark = read_if_set(store, process_key(rank));
  const std::string own = own_processes() + "\n";
  if (!mark || !mark->starts_with(own)) return std::nullopt;
  std::istringstream lines(mark->substr(own.size()));
  RankProcess process;
  lines >> process.number >> process.begin;
  return process.begin.empty() ? std::nullopt : std::optional(process);
}

AbsentRanks::AbsentRanks(c10d::Store& store, std::vector<int> members, std::vector<int> neighbours)
    : store_(store), members_(std::move(members)), neighbours_(std::move(neighbours)) {}

void AbsentRanks::read_processes() {
  for (const int rank : std::exchange(neighbours_, {})) {
    if (std::ranges::find(members_, rank) == members_.end()) continue;
    if (auto process = read_process(store_, rank)) processes_[rank] = std::move(*process);
  }
}

std::optional<std::string> AbsentRanks::find_noted() {
  const int64_t num_noted = store_.add(kCount, 0);
  if (std::exchange(num_noted_, num_noted) == num_noted) return std::nullopt;
  for (const int rank : members_) {
    if (const auto why = read_if_set(store_, absent_key(rank))) return message("rank ", rank, " ", *why);
  }
  return std::nullopt;
}

std::optional<std::string> AbsentRanks::find_ended() {
  read_processes();
  for (const auto& [rank, process] : processes_) {
    if (!motion_of(process).has_ended) continue;
    const std::string why = message("ended (process ", process.number, ")");
    note_absence(store_, rank, why);
    return message("rank ", rank, " ", why);
  }
  return std::nullopt;
}

std::string AbsentRanks::describe_stopped() {
  read_processes();
  std::string text;
  for (const auto& [rank, process] : processes_) {
    const char state = motion_of(process).stopped;
    if (state == '\0') continue;
    text += message(text.empty() ? "" : ", ", "rank ", rank, " (process ", process.number,
                    ") is stopped (state ", state, ")");
  }
  return text;
}

std::optional<std::string> AbsentRanks::find() {
  auto found = find_noted();
  return found ? found : find_ended();
}

}  // namespace deepspeed::comm
