// ds_node runs on each machine of a job, where `deepspeed` starts it.
#include "deepspeed/launcher/agent/node_program.h"

int main(int argc, char** argv) {
  return deepspeed::launcher::run_node_program(std::vector<std::string>(argv + 1, argv + argc));
}
