// The messages of a job over machines: one struct a kind, in the order in which a job needs them.
//
// Three kinds of processes talk: the launcher, `ds_node` on each machine (once a rank under MPI and Slurm),
// and the supervisor that `ds_node` forks, the parent of the ranks. All are of one version, which the first
// message shows. A message is a line of JSON whose key "t" is its kind. Launcher and `ds_node` send it over a
// Channel, the supervisor writes it into a pipe. A process ignores a message that comes at the wrong time. It
// closes the link at one that is damaged, or of a kind that it never gets.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "deepspeed/launcher/link/fields.h"

namespace deepspeed::launcher {

// --- both ends of a TCP link show that they know the job's secret ---

/// The launcher asks a program that has connected for a proof. The answer is Proof.
struct Challenge {
  static constexpr const char* kKind = "challenge";
  std::string number;  ///< random, drawn for this connection

  void fields(Fields& each) { each("number", number); }
};

/// `ds_node` answers a Challenge, and the launcher answers that. Then the link is sealed.
struct Proof {
  static constexpr const char* kKind = "proof";
  std::string number;  ///< random; the launcher has sent its own before
  std::string proof;   ///< HMAC of both numbers by the secret

  void fields(Fields& each) { each.maybe("number", number)("proof", proof); }
};

// --- before anything runs ---

/// The launcher gives `ds_node --deposit` the job to keep, on its standard input. The answer is Hello.
struct DepositJob {
  static constexpr const char* kKind = "deposit";
  std::string job;  ///< CarriedJob::text()

  void fields(Fields& each) { each("job", job); }
};

/// `ds_node` introduces itself, first of all. The launcher answers Prepare once all have done so.
struct Hello {
  static constexpr const char* kKind = "hello";
  std::string version;        ///< of the library. Another version may lack the other fields
  std::string host;           ///< the machine's own name
  std::string machine;        ///< tells machines apart, also containers with one name
  std::string process;        ///< process_name(), by which `ds_node --end` finds it
  std::string address;        ///< at which others reach the machine
  std::optional<int> number;  ///< what the runner has given it: pdsh a machine's number, MPI and Slurm a rank
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

/// The launcher tells `ds_node` which ranks to run. The answer is Planned or Failed.
struct Prepare {
  static constexpr const char* kKind = "prepare";
  int node = 0;             ///< the machine's number in `world`
  std::optional<int> rank;  ///< the only rank of this `ds_node`, under MPI and Slurm
  int local_rank = 0;       ///< that rank's number on its machine
  std::string job;          ///< CarriedJob::text(); empty if `ds_node` has it already
  std::string world;        ///< encode_world_info(): all machines, with a slot a rank
  int silence = 0;          ///< seconds after which a silent end counts as lost
  bool first = false;       ///< rank 0 runs there, so it chooses the port
  std::string address;      ///< at which the ranks meet

  void fields(Fields& each) {
    each("node", node)("world", world)("silence", silence)("address", address);
    each.maybe("rank", rank).maybe("local_rank", local_rank).maybe("job", job).maybe("first", first);
  }
};

/// `ds_node` says that its ranks can run. The launcher sends Start once all have said so.
struct Planned {
  static constexpr const char* kKind = "planned";
  std::string python;       ///< the interpreter's version; empty for a program that needs none
  std::optional<int> port;  ///< a free port for the ranks, from the first machine
  bool has_gpus = false;    ///< its ranks run on GPUs

  void fields(Fields& each) { each.maybe("python", python).maybe("port", port).maybe("has_gpus", has_gpus); }
};

// --- while ranks run ---

/// The launcher has the ranks started. There is no answer.
struct Start {
  static constexpr const char* kKind = "start";
  std::string address;  ///< at which the ranks meet
  int port = 0;
  int restarts = 0;  ///< how often an elastic job has started before

  void fields(Fields& each) { each("address", address)("port", port)("restarts", restarts); }
};

/// A process shows once a second that it lives. Launcher and `ds_node` do so to each other, the supervisor to
/// `ds_node`.
struct Beat {
  static constexpr const char* kKind = "beat";
};

/// `ds_node` passes on output of its ranks, if the link is the session of ssh. The answer is Ack.
struct Out {
  static constexpr const char* kKind = "out";
  Bytes bytes;

  void fields(Fields& each) { each("bytes", bytes); }
};

/// The launcher says how much output it has written. `ds_node` limits what is not written yet.
struct Ack {
  static constexpr const char* kKind = "ack";
  size_t bytes = 0;

  void fields(Fields& each) { each("bytes", bytes); }
};

/// The launcher passes on a signal that it was sent, for all ranks. SIGTSTP stops them until SIGCONT.
struct Signal {
  static constexpr const char* kKind = "signal";
  int number = 0;

  void fields(Fields& each) { each("number", number); }
};

/// The supervisor says, through `ds_node`, that somebody has stopped a rank. The launcher prints it.
struct Stopped {
  static constexpr const char* kKind = "stopped";
  std::string text;

  void fields(Fields& each) { each("text", text); }
};

// --- the end ---

/// `ds_node` says why its ranks cannot run, or passes on from the supervisor which one has failed. The
/// launcher sends Stop to all.
struct Failed {
  static constexpr const char* kKind = "failed";
  std::string text;
  int code = 1;         ///< the exit code of the job
  std::string details;  ///< a rank's last lines of output

  void fields(Fields& each) { each("text", text)("code", code).maybe("details", details); }
};

/// The launcher ends all ranks, or a program that it does not need. The answer is Ended.
struct Stop {
  static constexpr const char* kKind = "stop";
};

/// `ds_node` says that none of its ranks is left. The launcher closes the link.
struct Ended {
  static constexpr const char* kKind = "ended";
  int code = 0;

  void fields(Fields& each) { each("code", code); }
};

}  // namespace deepspeed::launcher
