// Sums of float arrays over the ranks of one node, through memory that they share.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// How large the shared memory has to be for so many ranks; 0 unless they are a power of two above one.
size_t rank_sums_memory_bytes(int num_ranks);

// Maps the memory behind a descriptor for this process's only exchange; its first 16 bytes are the caller's.
// Returns 0, or errno: EINVAL for a number of ranks, a rank or a size of memory that does not fit.
int rank_sums_open(int descriptor, int rank, int num_ranks);

// outputs[i] = factors[i] * (inputs[i] of all ranks, added up): the same on all ranks, to the bit, but for which NaN it
// is. Returns when this rank has its sums. All ranks have to call it in the same order with arrays of the same lengths
// (in floats). An output is the input itself, or overlaps no input. Only after rank_sums_open.
void rank_sums(const float* const* inputs, float* const* outputs, const int64_t* lengths, const float* factors,
               size_t num_arrays);

}  // extern "C"
