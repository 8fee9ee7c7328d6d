// Prints what Python's print(AcceleratorState()) prints, or the error, for tests that compare both.
#include <iostream>

#include "deepspeed/accelerate.h"

int main() {
  using namespace deepspeed::accelerate;
  try {
    const Accelerator accelerator;
    accelerator.print(AcceleratorState());
    return 0;
  } catch (const std::exception& error) {
    std::cout << "ERROR " << error.what() << std::endl;
    return 1;
  }
}
