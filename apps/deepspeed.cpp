// deepspeed starts a program for each rank and watches over the ranks (docs/launcher.md).
#include "deepspeed/launcher/command.h"

int main(int argc, char** argv) {
  return deepspeed::launcher::run_command(std::vector<std::string>(argv + 1, argv + argc));
}
