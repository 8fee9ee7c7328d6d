// These functions serve optimizers whose update of one element reads the whole parameter.
#pragma once

#include <source_location>

#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// Returns the number of elements of the parameter that the segment belongs to.
int64_t parameter_numel(const Segment& segment);

/// Says whether the segment is all of its parameter.
bool is_whole(const Segment& segment);

/// Returns the segment of the parameter; null where the slice has no part of it.
const Segment* find_segment(const FlatSlice& slice, int64_t param_index);

/// Returns the slice's segments. Throws UsageError, naming `where`, where the slice has none or one of them
/// is a part of its parameter.
const std::vector<Segment>& whole_parameters(
    const FlatSlice& slice, const std::source_location& where = std::source_location::current());

/// Returns the slice's segments, whole or parts. Throws UsageError, naming `where`, where the slice has none.
const std::vector<Segment>& segments_of(const FlatSlice& slice,
                                        const std::source_location& where = std::source_location::current());

/// Throws UsageError, naming `where`, for a part of a parameter.
void check_whole_parameter(const FlatSlice& slice, const Segment& segment,
                           const std::source_location& where = std::source_location::current());

}  // namespace deepspeed::optim
