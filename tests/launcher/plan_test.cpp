// What is decided before anything starts: resources, layout, variables, port, program.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/launcher/command.h"
#include "deepspeed/launcher/node/oom_watch.h"
#include "deepspeed/launcher/node/port.h"
#include "deepspeed/launcher/plan/program.h"
#include "deepspeed/launcher/plan/resources.h"

#include "tests/support/error_of.h"

namespace deepspeed::launcher {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

Machine machine_with_gpus(int num_gpus) { return {{"localhost", "box"}, {0, 1, 2, 3}, {0, 2}, num_gpus}; }

LaunchArgs args_with_ranks(int num_ranks) {
  LaunchArgs args;
  args.num_ranks = num_ranks;
  return args;
}

/// A folder that is removed at the end of the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("launcher_plan_test_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const std::string& text, bool executable = false) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
    if (executable) fs::permissions(path / name, fs::perms::owner_exec, fs::perm_options::add);
    return path / name;
  }
};

/// A listener on a port of the kernel's choice.
struct Listener {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port = 0;
  Listener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(fd, 1), 0);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
  }
  ~Listener() { ::close(fd); }
};

TEST(Resources, HaveOneRankForEachVisibleGpuOrOneOnTheCpu) {
  const auto gpus = resolve_resources({}, std::nullopt, machine_with_gpus(3), std::nullopt);
  EXPECT_EQ(gpus.nodes, (ResourcePool{{"localhost", {0, 1, 2}}}));
  EXPECT_THAT(gpus.devices, ElementsAre("0", "1", "2"));
  const auto visible = resolve_resources({}, std::nullopt, machine_with_gpus(8), "5,GPU-3f,-1,2");
  EXPECT_EQ(visible.nodes.front().slots.size(), 2u);
  EXPECT_THAT(visible.devices, ElementsAre("5", "GPU-3f"));
  for (const auto& hidden : {std::optional<std::string>(""), std::optional<std::string>("-1")}) {
    const auto cpu = resolve_resources({}, std::nullopt, machine_with_gpus(8), hidden);
    EXPECT_EQ(cpu.nodes, (ResourcePool{{"localhost", {0}}}));
    EXPECT_THAT(cpu.devices, IsEmpty());
  }
}

TEST(Resources, TakeTheNumberOfRanks) {
  EXPECT_THAT(resolve_resources(args_with_ranks(2), std::nullopt, machine_with_gpus(4), "3,2,1").devices,
              ElementsAre("3", "2"));
  const auto cpu = resolve_resources(args_with_ranks(5), std::nullopt, machine_with_gpus(0), std::nullopt);
  EXPECT_EQ(cpu.nodes.front().slots.size(), 5u);
  EXPECT_THAT(cpu.devices, IsEmpty());
}

TEST(Resources, RefuseMoreRanksThanVisibleGpus) {
  EXPECT_ERROR(UsageError, resolve_resources(args_with_ranks(3), std::nullopt, machine_with_gpus(2), "0,1"),
               "3 ranks, but 2 visible GPUs");
}

TEST(PlanLaunch, CountsRanksOnTheCpuIfGpusAreMissingAndWarnsOnce) {
  const auto said = [](const LaunchArgs& args, int num_gpus, const Environment& environment) {
    ::testing::internal::CaptureStderr();
    const NodeLaunch launch = plan_launch(args, machine_with_gpus(num_gpus), environment);
    EXPECT_EQ(launch.ranks.size(), 2u);
    return ::testing::internal::GetCapturedStderr();
  };
  LaunchArgs args = args_with_ranks(2);
  args.program = "/bin/sh";
  args.num_ranks_flag = "--num_gpus";
  const auto warning = HasSubstr("no GPU is visible: the ranks that --num_gpus counts run on the CPU");
  EXPECT_THAT(said(args, 0, {}), warning);
  EXPECT_THAT(said(args, 2, {{"CUDA_VISIBLE_DEVICES", ""}}), warning);
  EXPECT_THAT(said(args, 2, {}), ::testing::Not(warning));
  EXPECT_THAT(said(args, 0, {{"DS_ACCELERATOR", "cpu"}}), ::testing::Not(warning));
  args.num_ranks_flag = "--num_procs";
  EXPECT_THAT(said(args, 0, {}), ::testing::Not(warning));
  // Only the machine of rank 0 warns.
  args.num_ranks_flag = "--num_gpus";
  args.no_ssh = true;
  args.node_rank = 1;
  args.master_addr = "127.0.0.1";
  args.world_info = encode_world_info({{"a", {0, 1}}, {"b", {0, 1}}});
  EXPECT_THAT(said(args, 0, {}), ::testing::Not(warning));
}

TEST(Resources, FollowTheFilterAndWarnThatVisibleDevicesAreIgnored) {
  LaunchArgs args;
  args.include = "localhost:1,3";
  const auto included = resolve_resources(args, std::nullopt, machine_with_gpus(4), "0");
  EXPECT_THAT(included.devices, ElementsAre("1", "3"));
  EXPECT_THAT(included.warnings, ElementsAre(HasSubstr("CUDA_VISIBLE_DEVICES=0 is ignored")));
  const auto cpu = resolve_resources(args, std::nullopt, machine_with_gpus(0), std::nullopt);
  EXPECT_THAT(cpu.nodes.front().slots, ElementsAre(1, 3));
  EXPECT_THAT(cpu.devices, IsEmpty());
  EXPECT_THAT(error_of<UsageError>(
                  [&] { resolve_resources(args, std::nullopt, machine_with_gpus(2), std::nullopt); }),
              HasSubstr("slot 3"));
}

TEST(Resources, RefuseASlotThatTheHostfileDoesNotHave) {
  LaunchArgs args;
  args.include = "localhost:7";
  EXPECT_THAT(
      error_of<UsageError>([&] {
        resolve_resources(args, ResourcePool{{"localhost", {0, 1, 2}}}, machine_with_gpus(0), std::nullopt);
      }),
      HasSubstr("no slot 7 on host 'localhost', which has 0,1,2"));
}

TEST(Resources, RefuseOtherMachinesUnlessTheFilterLeavesThemOut) {
  const ResourcePool hosts = {{"box", {0, 1}}, {"far", {0, 1}}};
  EXPECT_ERROR(UsageError, resolve_resources({}, hosts, machine_with_gpus(0), std::nullopt),
               "host 'far' is not this machine", "--include");
  LaunchArgs args;
  args.exclude = "far@box:0";
  EXPECT_EQ(resolve_resources(args, hosts, machine_with_gpus(0), std::nullopt).nodes,
            (ResourcePool{{"box", {1}}}));
}

TEST(Resources, HaveOneSlotIfThereIsNoGpuAndTheFilterNamesNone) {
  LaunchArgs args;
  args.include = "localhost";
  EXPECT_EQ(resolve_resources(args, std::nullopt, machine_with_gpus(0), std::nullopt).nodes,
            (ResourcePool{{"localhost", {0}}}));
}

TEST(Resources, SayWhatIsWrongWithAHostfile) {
  const auto resolve = [](const LaunchArgs& args, const ResourcePool& hosts, int num_gpus) {
    resolve_resources(args, hosts, machine_with_gpus(num_gpus), std::nullopt);
  };
  LaunchArgs included, excluded;
  included.include = excluded.exclude = "box";
  EXPECT_ERROR(UsageError, resolve({}, {{"box", {}}}, 0), "gives every host slots=0");
  EXPECT_ERROR(UsageError, resolve(included, {{"box", {}}}, 0), "--include 'box' leaves no slot to run on");
  EXPECT_ERROR(UsageError, resolve(excluded, {{"box", {0}}}, 0), "--exclude 'box' leaves no slot to run on");
  EXPECT_ERROR(UsageError, resolve({}, {{"box", {0}}, {"localhost", {0}}}, 0), "'box' and 'localhost'",
               "write one line with all slots");
  EXPECT_ERROR(UsageError, resolve({}, {{"box", {0, 1, 2}}}, 2), "slot 2 of host 'box'",
               "has 2 GPUs (slots 0 to 1)");
}

TEST(Resources, TakeTheFirstMachinesWithTheNumberOfRanksThatIsAskedFor) {
  const ResourcePool hosts = {{"a", {0, 1}}, {"b", {0, 1}}, {"c", {0}}};
  LaunchArgs args;
  EXPECT_EQ(choose_nodes(args, hosts), hosts);
  args.num_nodes = 2;
  EXPECT_EQ(choose_nodes(args, hosts), (ResourcePool{{"a", {0, 1}}, {"b", {0, 1}}}));
  args.num_ranks = 3;
  EXPECT_EQ(choose_nodes(args, hosts), (ResourcePool{{"a", {0, 1, 2}}, {"b", {0, 1, 2}}}));
  args.num_nodes = 4;
  EXPECT_ERROR(UsageError, choose_nodes(args, hosts), "--num_nodes is 4, but the hostfile has 3 hosts");
}

TEST(PlanLaunch, CountsTheRanksOfOtherMachinesToo) {
  LaunchArgs args;
  args.program = "/bin/sh";
  args.no_ssh = true;
  args.node_rank = 1;
  args.master_addr = "10.0.0.1";
  args.world_info = encode_world_info({{"a", {0, 1}}, {"b", {0, 2}}});
  const NodeLaunch launch = plan_launch(args, machine_with_gpus(0), {});
  ASSERT_EQ(launch.ranks.size(), 2u);
  EXPECT_EQ(launch.ranks[1].rank, 3);
  EXPECT_EQ(launch.ranks[1].environment.at("WORLD_SIZE"), "4");
  EXPECT_EQ(launch.ranks[1].environment.at("CROSS_RANK"), "1");
  EXPECT_EQ(launch.ranks[1].environment.at("MASTER_ADDR"), "10.0.0.1");
  EXPECT_EQ(launch.ranks[1].environment.at("MASTER_PORT"), "29500");
  args.node_rank = 2;
  EXPECT_ERROR(UsageError, plan_launch(args, machine_with_gpus(0), {}), "--node_rank is 2, expected 0 to 1");
  args.node_rank = 1;
  args.master_addr = "";
  EXPECT_ERROR(UsageError, plan_launch(args, machine_with_gpus(0), {}), "--no_ssh", "--master_addr");
}

TEST(WorldLayout, CountsRanksOverHostsAndTheirSlotsInOrder) {
  const WorldLayout layout{{{"a", {0, 3}}, {"b", {1, 2, 5}}}};
  EXPECT_EQ(layout.world_size(), 5);
  const auto second = layout.ranks_of(1);
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(second[0].rank, 2);
  EXPECT_EQ(second[2].rank, 4);
  EXPECT_EQ(second[2].local_rank, 2);
  EXPECT_EQ(second[2].slot, 5);
  EXPECT_THAT(error_of<UsageError>([&] { layout.ranks_of(2); }), HasSubstr("node 2"));
}

TEST(RankEnvironment, HoldsWhatARankNeedsToMeetTheOthers) {
  NodeEnvironment node{{{{"a", {0, 1}}, {"b", {4, 6}}}}, 1, "10.0.0.1", 29501, {"4", "6"}, 3};
  const auto variables = rank_environment({{"HOME", "/h"}, {"RANK", "9"}}, node, node.layout.ranks_of(1)[1]);
  const Environment expected = {{"HOME", "/h"},
                                {"RANK", "3"},
                                {"LOCAL_RANK", "1"},
                                {"WORLD_SIZE", "4"},
                                {"LOCAL_SIZE", "2"},
                                {"LOCAL_WORLD_SIZE", "2"},
                                {"CROSS_RANK", "1"},
                                {"CROSS_SIZE", "2"},
                                {"MASTER_ADDR", "10.0.0.1"},
                                {"MASTER_PORT", "29501"},
                                {"CUDA_VISIBLE_DEVICES", "4,6"},
                                {"OMP_NUM_THREADS", "3"}};
  EXPECT_EQ(variables, expected);
}

TEST(RankEnvironment, KeepsTheUsersThreadsAndTouchesNoDevicesOnTheCpu) {
  NodeEnvironment node{{{{"a", {0, 1}}}}, 0, "127.0.0.1", 29500, {}, 3};
  const auto variables = rank_environment({{"OMP_NUM_THREADS", "7"}}, node, node.layout.ranks_of(0)[0]);
  EXPECT_EQ(variables.at("OMP_NUM_THREADS"), "7");
  EXPECT_EQ(variables.count("CUDA_VISIBLE_DEVICES"), 0u);
  EXPECT_EQ(threads_per_rank(8, 3), 2);
  EXPECT_EQ(threads_per_rank(2, 4), 1);
}

TEST(MachineFacts, CountGpusAndPhysicalCoresFromTheKernelsFiles) {
  const Folder root;
  root.write("proc/driver/nvidia/gpus/0000:01:00.0/information", "");
  root.write("proc/driver/nvidia/gpus/0000:02:00.0/information", "");
  root.write("dev/nvidia0", "");
  root.write("dev/nvidiactl", "");
  const Machine real = read_machine();
  ASSERT_FALSE(real.cores.empty());
  for (const int core : real.cores) {
    root.write("sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/thread_siblings_list",
               "all\n");
  }
  const Machine machine = read_machine(root.path);
  EXPECT_EQ(machine.num_gpus, 2);
  EXPECT_THAT(machine.physical_cores, ElementsAre(real.cores.front()));
  EXPECT_TRUE(machine.is_this("localhost"));
  EXPECT_FALSE(machine.is_this("no-such-host"));
}

TEST(MasterPort, ReplacesATakenDefaultAndRefusesATakenPort) {
  const Listener listener;
  EXPECT_FALSE(port_is_free(listener.port));
  const PortChoice choice = choose_master_port(std::nullopt, listener.port);
  EXPECT_TRUE(choice.replaces_default);
  EXPECT_NE(choice.port, listener.port);
  EXPECT_TRUE(port_is_free(choice.port));
  EXPECT_THAT(error_of<UsageError>([&] { choose_master_port(listener.port, 29500); }),
              HasSubstr("--master_port " + std::to_string(listener.port) + " is in use"));
}

TEST(MasterPort, NamesTheOtherUserThatHasIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uid_t kNobody = 65534;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
    const Listener theirs;
    static_cast<void>(!::write(ready[1], &theirs.port, sizeof(theirs.port)));
    ::pause();
  }
  int port = 0;
  ASSERT_EQ(::read(ready[0], &port, sizeof(port)), ssize_t(sizeof(port)));
  EXPECT_ERROR(UsageError, choose_master_port(port, 29500), "is in use by a program of another user",
               "(uid 65534)", "leave the flag out");
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  for (const int end : ready) ::close(end);
}

TEST(FindProgramCommand, LooksBesideThisProgramBehindThePath) {
  const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
  LaunchArgs args;
  args.program = std::filesystem::path(own).filename().string();
  args.no_python = true;
  EXPECT_EQ(find_program_command(args, {{"PATH", "/nowhere"}}).path, own);
  args.program = "sh";
  EXPECT_EQ(find_program_command(args, {{"PATH", "/bin"}}).path, "/bin/sh");
}

TEST(MasterPort, IsLeftToTheLauncherThatChoseItFirst) {
  int port = 0;
  {
    const Listener listener;
    port = listener.port;
  }
  const PortChoice first = choose_master_port(std::nullopt, port);
  EXPECT_EQ(first.port, port);
  EXPECT_TRUE(port_is_free(port));  // its ranks do not listen yet
  {
    const PortChoice second = choose_master_port(std::nullopt, port);
    EXPECT_TRUE(second.replaces_default);
    EXPECT_NE(second.port, port);
    const PortChoice third = choose_master_port(std::nullopt, port);
    EXPECT_NE(third.port, port);
    EXPECT_NE(third.port, second.port);
    EXPECT_ERROR(UsageError, choose_master_port(second.port, 29500),
                 "--master_port " + std::to_string(second.port) + " is in use", "leave the flag out");
  }
  EXPECT_EQ(PortClaim::take(port), nullptr);
}

TEST(Program, IsFoundByPathOrInTheSearchPath) {
  const Folder folder;
  const std::string script = folder.write("train", "#!/bin/sh\n", true);
  EXPECT_EQ(find_program(script, ""), script);
  EXPECT_EQ(find_program("train", "/nowhere:" + folder.path.string()), script);
}

TEST(Program, GivesAShellsCodeAndTheReasonIfItCannotRun) {
  const Folder folder;
  const auto failure = [](const std::string& name) {
    try {
      find_program(name, "/nowhere");
    } catch (const ProgramError& error) {
      return std::make_pair(error.exit_code(), std::string(error.what()));
    }
    return std::make_pair(0, std::string("(found)"));
  };
  using ::testing::Pair;
  EXPECT_THAT(failure("no_such_program"), Pair(127, HasSubstr("not found in PATH")));
  EXPECT_THAT(failure("./no_such_program"), Pair(127, HasSubstr("not found")));
  EXPECT_THAT(failure(folder.path.string()), Pair(126, HasSubstr("is a folder")));
  for (const bool is_executable : {false, true}) {
    EXPECT_THAT(failure(folder.write("train.cpp", "int main() {}\n", is_executable)),
                Pair(126, HasSubstr("train.cpp is a source file, no program: compile it")));
  }
  EXPECT_THAT(failure(folder.path.string() + "/lost.cpp"), Pair(127, HasSubstr("not found")));
  EXPECT_THAT(failure(folder.write("data", "x")), Pair(126, HasSubstr("chmod +x")));
  EXPECT_THAT(failure(folder.write("text", "echo\n", true)), Pair(126, HasSubstr("'#!'")));
  EXPECT_THAT(failure(folder.write("lost", "#!/no/shell\n", true)), Pair(126, HasSubstr("/no/shell")));
}

TEST(OomCounters, AreReadFromBothKindsOfControlGroups) {
  const Folder root;
  root.write("proc/vmstat", "nr_free_pages 12\noom_kill 5\n");
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("sys/fs/cgroup/job/memory.events", "low 0\noom 4\noom_kill 3\n");
  EXPECT_EQ(read_oom_counters(root.path).cgroup, 3);
  EXPECT_EQ(read_oom_counters(root.path).machine, 5);
  root.write("proc/self/cgroup", "4:memory:/job\n0::/\n");
  root.write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 9\n");
  EXPECT_EQ(read_oom_counters(root.path).cgroup, 9);
  root.write("proc/self/cgroup", "");
  EXPECT_FALSE(read_oom_counters(root.path).cgroup);
}

TEST(OomCounters, ExplainASigkillOnlyIfTheyChanged) {
  EXPECT_EQ(explain_sigkill({3, 5}, {3, 5}), "");
  EXPECT_EQ(explain_sigkill({std::nullopt, std::nullopt}, {3, 5}), "");
  EXPECT_THAT(explain_sigkill({3, 5}, {4, 6}), HasSubstr("control group (oom_kill 3 -> 4)"));
  EXPECT_THAT(explain_sigkill({3, 5}, {3, 6}), HasSubstr("this machine (oom_kill 5 -> 6)"));
}

TEST(PlanLaunch, BindsCoresAndSetsTheThreadsToTheirNumber) {
  LaunchArgs args = args_with_ranks(2);
  args.program = "/bin/sh";
  args.bind_cores_to_rank = true;
  const NodeLaunch physical = plan_launch(args, machine_with_gpus(0), {});
  EXPECT_THAT(physical.ranks[0].cores, ElementsAre(0));
  EXPECT_THAT(physical.ranks[1].cores, ElementsAre(2));
  args.bind_core_list = "0-3";
  const NodeLaunch listed = plan_launch(args, machine_with_gpus(0), {});
  EXPECT_THAT(listed.ranks[1].cores, ElementsAre(2, 3));
  EXPECT_EQ(listed.ranks[1].environment.at("OMP_NUM_THREADS"), "2");
  args.bind_core_list = "2-5";
  EXPECT_THAT(error_of<UsageError>([&] { plan_launch(args, machine_with_gpus(0), {}); }),
              HasSubstr("core 4"));
}

// The ranks' own lines are most of what is printed.
TEST(PlanLaunch, QuietsTheRanksOfAQuietLaunch) {
  const auto level_of = [](const std::vector<std::string>& words, const Environment& own) {
    const NodeLaunch launch = plan_launch(parse_args(words).args, machine_with_gpus(0), own);
    const auto found = launch.ranks[1].environment.find("DEEPSPEED_LOG_LEVEL");
    return found == launch.ranks[1].environment.end() ? std::string("unset") : found->second;
  };
  EXPECT_EQ(level_of({"--num_procs", "2", "/bin/sh"}, {}), "unset");
  EXPECT_EQ(level_of({"-q", "--num_procs", "2", "/bin/sh"}, {}), "error");
  EXPECT_EQ(level_of({"--log_level", "debug", "--num_procs", "2", "/bin/sh"}, {}), "debug");
  EXPECT_EQ(level_of({"-q", "--num_procs", "2", "/bin/sh"}, {{"DEEPSPEED_LOG_LEVEL", "info"}}), "info");
}

}  // namespace
}  // namespace deepspeed::launcher
