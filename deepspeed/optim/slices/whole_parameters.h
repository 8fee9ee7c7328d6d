// Helpers for optimizers whose update of one element reads the whole parameter.
#pragma once

#include <source_location>

#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// Returns the number of elements of the parameter that the segment belongs to.
int64_t parameter_numel(const Segment& segment);

/// Returns whether the segment covers its whole parameter.
bool is_whole(const Segment& segment);

/// Returns the slice's segment of a parameter; null if it has none.
const Segment* find_segment(const FlatSlice& slice, int64_t param_index);

/// Returns the slice's segments. Throws UsageError, naming `where`, if there are none or one covers only a
/// part of its parameter.
const std::vector<Segment>& whole_parameters(
    const FlatSlice& slice, const std::source_location& where = std::source_location::current());

/// Returns the slice's segments, whole or partial. Throws UsageError, naming `where`, if there are none.
const std::vector<Segment>& segments_of(const FlatSlice& slice,
                                        const std::source_location& where = std::source_location::current());

/// Throws UsageError, naming `where`, if the segment covers only a part of its parameter.
void check_whole_parameter(const FlatSlice& slice, const Segment& segment,
                           const std::source_location& where = std::source_location::current());

}  // namespace deepspeed::optim
