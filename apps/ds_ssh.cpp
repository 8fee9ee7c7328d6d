// ds_ssh runs a command on all hosts of a hostfile.
#include "deepspeed/launcher/machines/on_hosts.h"

int main(int argc, char** argv) {
  return deepspeed::launcher::run_on_hosts(std::vector<std::string>(argv + 1, argv + argc));
}
