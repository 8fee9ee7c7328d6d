// The messages of a job over machines: one struct for each kind, in the order of their use.
//
// Three kinds of processes send them: the launcher, `ds_node` on each machine (or for each rank under MPI and
// Slurm), and the supervisor, which `ds_node` forks as the parent of the ranks. All have one version, which
// the first message shows. A message is a line of JSON whose key "t" is its kind. Launcher and `ds_node` send
// it over a Channel; the supervisor writes it into a pipe. A process ignores a message that comes at the
// wrong time. A message that is damaged, or of an unexpected kind, closes the link.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "deepspeed/launcher/link/fields.h"

namespace deepspeed::launcher {

// --- both ends of a TCP link prove that they have the job's secret ---

/// The launcher asks a program that has connected for a proof. The program answers with Proof.
struct Challenge {
  static constexpr const char* kKind = "challenge";
  std::string number;  ///< random, for this connection only

  void fields(Fields& each) { each("number", number); }
};

/// `ds_node` answers a Challenge, and the launcher answers with its own Proof. Then the link is sealed.
struct Proof {
  static constexpr const char* kKind = "proof";
  std::string number;  ///< random; the launcher's is in its Challenge
  std::string proof;   ///< HMAC of both numbers with the secret

  void fields(Fields& each) { each.maybe("number", number)("proof", proof); }
};

// --- before anything runs ---

/// The launcher gives `ds_node --deposit` the job to keep, on standard input. `ds_node` answers with Hello.
struct DepositJob {
  static constexpr const char* kKind = "deposit";
  std::string job;  ///< CarriedJob::text()

  void fields(Fields& each) { each("job", job); }
};

/// `ds_node` introduces itself with its first message. The launcher sends Prepare once all have done so.
struct Hello {
  static constexpr const char* kKind = "hello";
  std::string version;        ///< the library's; another version may lack the other fields
  std::string host;           ///< the machine's own name
  std::string machine;        ///< unique for each machine, even if containers share a name
  std::string process;        ///< process_name(), for `ds_node --end`
  std::string address;        ///< at which other machines reach it
  std::optional<int> number;  ///< the runner's: a machine's number from pdsh, a rank from MPI and Slurm
  std::string slurm_job, slurm_step;

  void fields(Fields& each) {
    each("version", version)
        .maybe("host", host)
        .maybe("machine", machine)
        .maybe("process", process)
        .maybe("address", address)
        .maybe("number", number)
        .maybe("slurm_job", slurm_job)
        .maybe("slurm_step", slurm_step);
  }
};

/// The launcher tells `ds_node` which ranks to run. `ds_node` answers with Planned or Failed.
struct Prepare {
  static constexpr const char* kKind = "prepare";
  int node = 0;             ///< the machine's number in `world`
  std::optional<int> rank;  ///< the only rank here, under MPI and Slurm
  int local_rank = 0;       ///< that rank's number on its machine
  std::string job;          ///< CarriedJob::text(); empty if `ds_node` has it already
  std::string world;        ///< encode_world_info(): all machines, with one slot for each rank
  int silence = 0;          ///< seconds until a silent end counts as lost
  bool first = false;       ///< rank 0 runs here, so this machine chooses the port
  std::string address;      ///< at which the ranks meet

  void fields(Fields& each) {
    each("node", node)("world", world)("silence", silence)("address", address);
    each.maybe("rank", rank).maybe("local_rank", local_rank).maybe("job", job).maybe("first", first);
  }
};

/// `ds_node` reports that its ranks can run. The launcher sends Start once all have done so.
struct Planned {
  static constexpr const char* kKind = "planned";
  std::string python;       ///< the interpreter's version; empty if the program needs none
  std::optional<int> port;  ///< a free port for the ranks, from the first machine
  bool has_gpus = false;    ///< the ranks run on GPUs

  void fields(Fields& each) { each.maybe("python", python).maybe("port", port).maybe("has_gpus", has_gpus); }
};

// --- while ranks run ---

/// The launcher starts the ranks. There is no answer.
struct Start {
  static constexpr const char* kKind = "start";
  std::string address;  ///< at which the ranks meet
  int port = 0;
  int restarts = 0;  ///< how often an elastic job has restarted

  void fields(Fields& each) { each("address", address)("port", port)("restarts", restarts); }
};

/// A process shows once a second that it lives. Launcher and `ds_node` send it to each other, the supervisor
/// to `ds_node`.
struct Beat {
  static constexpr const char* kKind = "beat";
};

/// `ds_node` forwards output of its ranks, if the link is ssh's. The launcher answers with Ack.
struct Out {
  static constexpr const char* kKind = "out";
  Bytes bytes;

  void fields(Fields& each) { each("bytes", bytes); }
};

/// The launcher reports `bytes` more of the output as written. `ds_node` limits what is not written yet.
struct Ack {
  static constexpr const char* kKind = "ack";
  size_t bytes = 0;

  void fields(Fields& each) { each("bytes", bytes); }
};

/// The launcher forwards a signal to all ranks. SIGTSTP stops them until SIGCONT.
struct Signal {
  static constexpr const char* kKind = "signal";
  int number = 0;

  void fields(Fields& each) { each("number", number); }
};

/// The supervisor reports, through `ds_node`, a rank that somebody has stopped. The launcher prints it.
struct Stopped {
  static constexpr const char* kKind = "stopped";
  std::string text;

  void fields(Fields& each) { each("text", text); }
};

// --- the end ---

/// `ds_node` reports why its ranks cannot run, or, for the supervisor, which one has failed. The launcher
/// sends Stop to all.
struct Failed {
  static constexpr const char* kKind = "failed";
  std::string text;
  int code = 1;         ///< the exit code of the job
  std::string details;  ///< a rank's last lines of output

  void fields(Fields& each) { each("text", text)("code", code).maybe("details", details); }
};

/// The launcher ends all ranks, or a program that it does not need. `ds_node` answers with Ended.
struct Stop {
  static constexpr const char* kKind = "stop";
};

/// `ds_node` reports that none of its ranks is left. The launcher closes the link.
struct Ended {
  static constexpr const char* kKind = "ended";
  int code = 0;

  void fields(Fields& each) { each("code", code); }
};

}  // namespace deepspeed::launcher
