// ds_node: the part of a job of several machines that runs on one of them; `deepspeed` starts it there.
#include "deepspeed/launcher/agent/node_program.h"

int main(int argc, char** argv) {
  return deepspeed::launcher::run_node_program(std::vector<std::string>(argv + 1, argv + argc));
}
