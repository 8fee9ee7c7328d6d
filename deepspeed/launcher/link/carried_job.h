// The launcher's data for the program on each machine, before there is a link: arguments, variables and the
// job's secret. It travels through the runner's own channel, never on a command line.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// Describes a job to the program `ds_node` on each of the job's machines. Words and values of variables may
/// have any bytes but zeros.
struct CarriedJob {
  std::vector<std::string> words;  ///< the launcher's command line
  Environment exports;             ///< variables of all ranks, which replace a machine's own
  std::string working_folder;
  std::string secret;                  ///< authenticates both ends of a TCP link; may be empty
  std::vector<std::string> addresses;  ///< of the launcher's machine; none without a TCP link
  int port = 0;

  /// Returns the text for from_text(): one line of letters, digits, '-', '_' and '='.
  std::string text() const;
  /// Reads what text() returns. Throws UsageError for any other text.
  static CarriedJob from_text(const std::string& text);
};

/// Splits the job's text() into variables for a runner (DEEPSPEED_JOB, DEEPSPEED_JOB_1, ...). The kernel
/// limits each variable to 128 KiB.
Environment job_variables(const CarriedJob& job);

/// Returns whether job_variables() may use this name. A variable of the user with such a name would be
/// mistaken for a part of the job.
bool is_job_variable(const std::string& name);

/// Removes the job's variables from an environment, so that ranks do not see them. Returns the job that they
/// hold. Throws UsageError if there are none.
CarriedJob take_job(Environment& environment);

/// Keeps a job's description in a file that only its user can read. A `ds_node` that pdsh starts reads it,
/// since pdsh passes no data on. The file is removed with this object, and by take_deposit().
class Deposit {
 public:
  /// `id` has only letters and digits. Throws IoError if the file exists or cannot be written.
  Deposit(const std::string& id, const std::string& text);
  ~Deposit();
  Deposit(const Deposit&) = delete;
  Deposit& operator=(const Deposit&) = delete;

 private:
  std::string path_;
};

/// Waits for the file of a Deposit whose id begins with `id`. Removes the file and returns its text. Several
/// machines may share the folder, and each has its own deposit there. Throws IoError if this user has written
/// none within `patience`, or if this process is abandoned (is_abandoned()).
std::string take_deposit(const std::string& id, std::chrono::milliseconds patience);

}  // namespace deepspeed::launcher
