// For optimizers whose update of one element reads the whole parameter.
#pragma once

#include "deepspeed/optim/optimizer.h"

namespace deepspeed::optim {

/// The number of elements of the parameter that the segment belongs to.
int64_t parameter_numel(const Segment& segment);

/// The slice's segments. Throws UsageError, naming `where`, where the slice has none or one of them is a part
/// of its parameter.
const std::vector<Segment>& whole_parameters(const char* where, const FlatSlice& slice);

/// Throws what whole_parameters throws for a part.
void check_whole_parameter(const char* where, const FlatSlice& slice, const Segment& segment);

}  // namespace deepspeed::optim
