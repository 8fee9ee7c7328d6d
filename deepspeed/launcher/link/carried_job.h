// What a job's launcher hands to the program of each machine before the link between them stands: arguments,
// variables and the job's secret. It travels on the runner's own channel, never on a command line.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// The description of a job. Arguments and values may have any bytes but zeros.
struct CarriedJob {
  std::vector<std::string> words;  ///< of the launcher's command line
  Environment exports;             ///< variables of all ranks, in place of a machine's own
  std::string working_folder;
  std::string secret;                  ///< by which both ends of a TCP link know each other; may be empty
  std::vector<std::string> addresses;  ///< at which the launcher may be reached, without a TCP link none
  int port = 0;

  /// Writes what from_text() reads: one line of letters, digits, '-', '_' and '='.
  std::string text() const;
  /// Throws UsageError for another text.
  static CarriedJob from_text(const std::string& text);
};

/// Cuts the text into variables that a runner passes on (DEEPSPEED_JOB, DEEPSPEED_JOB_1, ...): the kernel
/// limits each to 128 KiB.
Environment job_variables(const CarriedJob& job);

/// Whether a variable has such a name. One that the user has set would be taken for a part of the job.
bool is_job_variable(const std::string& name);

/// Takes the job out of an environment, and its variables with it, which no rank sees. Throws UsageError
/// where there is none.
CarriedJob take_job(Environment& environment);

/// Keeps the description in a file that its user alone reads, for a program that another runner starts (pdsh
/// has no channel of its own). It is removed with this object, and by take_deposit().
class Deposit {
 public:
  /// `id` has letters and digits alone. Throws IoError where the file exists or cannot be written.
  Deposit(const std::string& id, const std::string& text);
  ~Deposit();
  Deposit(const Deposit&) = delete;
  Deposit& operator=(const Deposit&) = delete;

 private:
  std::string path_;
};

/// Reads and removes the file of a Deposit whose id begins with this one: several machines may share the
/// folder, and each has a deposit of its own there. Throws IoError where none that this user has written is
/// there within `patience`, or this process is abandoned before.
std::string take_deposit(const std::string& id, std::chrono::milliseconds patience);

}  // namespace deepspeed::launcher
