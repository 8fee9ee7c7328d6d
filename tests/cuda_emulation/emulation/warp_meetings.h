// The lanes of a warp meet in its functions: shuffles, votes, __syncwarp().
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

namespace emulation {

inline constexpr unsigned kWarpSize = 32;

/// Holds what each lane has brought, by lane.
struct Gathered {
  uint64_t values[kWarpSize];
};

/// One call of a warp function: who calls, for which lanes, and where it stands in the source.
struct WarpCall {
  unsigned lane = 0;
  unsigned mask = 0;
  const char* function = nullptr;
  std::source_location where;
};

/// Returns the name of the file and the line.
std::string place(const std::source_location& where);

/// Matches the calls of a warp's lanes. Lanes meet where mask and function are equal; calls that a GPU would
/// leave undefined are reported.
class WarpMeetings {
 public:
  using Report = std::function<void(std::string)>;

  /// Takes the call of a lane, and returns the number of its meeting. `present`: lanes that the warp has;
  /// `returned`: lanes whose thread has ended.
  int arrive(WarpCall call, uint64_t value, unsigned present, unsigned returned, const Report& report);
  /// Says whether all lanes of the meeting are there.
  bool is_complete(int meeting) const { return !at(meeting).open; }
  unsigned mask(int meeting) const { return at(meeting).mask; }
  /// Hands a lane what all have brought; each lane of the mask calls it once.
  Gathered read(int meeting);
  /// Notes that the thread of a lane has ended.
  void lane_ends(unsigned lane, const Report& report) const;
  void clear() { meetings_.clear(); }

 private:
  struct Meeting {
    bool open = false;  // lanes are missing
    int unread = 0;     // lanes that have not read
    unsigned mask = 0, arrived = 0;
    const char* function = nullptr;
    Gathered gathered{};
  };

  const Meeting& at(int meeting) const { return meetings_[static_cast<size_t>(meeting)]; }
  int open_meeting(const WarpCall& call, unsigned returned, const Report& report);

  std::vector<Meeting> meetings_;
};

}  // namespace emulation
