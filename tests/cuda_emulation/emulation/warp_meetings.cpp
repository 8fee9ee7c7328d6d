#include "cuda_emulation/emulation/warp_meetings.h"

#include <cstring>

namespace emulation {
namespace {

std::string at_place(const WarpCall& call) {
  return std::string(call.function) + " at " + place(call.where) + ": ";
}

}  // namespace

std::string place(const std::source_location& where) {
  const char* const file = std::strrchr(where.file_name(), '/');
  return std::string(file != nullptr ? file + 1 : where.file_name()) + ":" + std::to_string(where.line());
}

int WarpMeetings::arrive(WarpCall call, uint64_t value, unsigned present, unsigned returned,
                         const Report& report) {
  const unsigned bit = 1U << call.lane;
  if ((call.mask & bit) == 0) report(at_place(call) + "the calling lane is not in the mask");
  if ((call.mask & ~present) != 0) report(at_place(call) + "the mask has lanes that the block has not");
  call.mask = (call.mask | bit) & present;
  int found = -1;
  for (size_t i = 0; i < meetings_.size(); ++i) {
    const Meeting& meeting = meetings_[i];
    if (!meeting.open) continue;
    if (meeting.mask == call.mask && meeting.function == call.function && (meeting.arrived & bit) == 0) {
      found = static_cast<int>(i);
    } else if ((meeting.mask & bit) != 0) {
      report(at_place(call) + "other lanes wait for this one in " + meeting.function +
             ", or with another mask");
    }
  }
  if (found < 0) found = open_meeting(call, returned, report);
  Meeting& meeting = meetings_[static_cast<size_t>(found)];
  meeting.gathered.values[call.lane] = value;
  meeting.arrived |= bit;
  if (meeting.arrived == meeting.mask) {
    meeting.open = false;
    meeting.unread = __builtin_popcount(meeting.mask);
  }
  return found;
}

int WarpMeetings::open_meeting(const WarpCall& call, unsigned returned, const Report& report) {
  if ((call.mask & returned) != 0) report(at_place(call) + "the mask has a lane that has returned");
  size_t index = 0;
  while (index < meetings_.size() && (meetings_[index].open || meetings_[index].unread != 0)) ++index;
  if (index == meetings_.size()) meetings_.emplace_back();
  meetings_[index] = {.open = true, .mask = call.mask, .function = call.function};
  return static_cast<int>(index);
}

Gathered WarpMeetings::read(int meeting) {
  Meeting& read_of = meetings_[static_cast<size_t>(meeting)];
  --read_of.unread;
  return read_of.gathered;
}

void WarpMeetings::lane_ends(unsigned lane, const Report& report) const {
  for (const Meeting& meeting : meetings_) {
    if (meeting.open && (meeting.mask >> lane & 1U) != 0)
      report(std::string("a lane returned that is in the mask of ") + meeting.function +
             ", where others wait");
  }
}

}  // namespace emulation
