// Ranks add up in pairs (recursive doubling): in round j each exchanges with the rank whose number differs in bit j,
// and after log2(n) rounds all hold the sum of all. It is the same to the bit, because a + b is b + a (but for which
// NaN it is, where several meet).
//
// All arrays of a call are one long row, cut into pieces. A rank posts pieces into slots of its own, a few ahead, and
// adds its partner's to its own, which are still in its cache. So each number is copied once and added once; Open MPI's
// allreduce copies it four times (102 MB over two ranks: 12 to 19 ms of CPU time here, 45 there).

#include "rank_sums.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

constexpr size_t kPieceFloats = 64 * 1024;
constexpr uint64_t kSlots = 4;
constexpr size_t kHeadBytes = 4096;
constexpr int kMaxRounds = 10;
// A partner that is a little late is waited for on the core, one that is late beside others who want it, and one
// that saves a checkpoint asleep. A pause takes some 20 ns, a yield half a microsecond. There is no end to it: mpirun
// ends those whose partner died, and the training's heartbeat those whose partner stands still.
constexpr int kPauses = 200;
constexpr int kYields = 20000;
constexpr useconds_t kNapUs = 100;

// What one rank posts in one round. Both counters only grow; each has a cache line that one core writes.
struct Desk {
  alignas(64) std::atomic<uint64_t> posted;
  alignas(64) std::atomic<uint64_t> taken;
  alignas(4096) float slots[kSlots][kPieceFloats];

  float* slot(uint64_t number) { return slots[number % kSlots]; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes share the counters");

struct Exchange {
  Desk* desks = nullptr;
  int rank = 0;
  int num_rounds = 0;
  uint64_t exchanged[kMaxRounds] = {};  // pieces, by round, of all calls so far

  Desk& desk(int of_rank, int round) const { return desks[static_cast<size_t>(of_rank) * num_rounds + round]; }
};

Exchange exchange;

// The arrays of one call as one long row.
struct Row {
  const float* const* inputs;
  float* const* outputs;
  const int64_t* lengths;
  const float* factors;  // null: all 1
  size_t num_arrays;

  size_t num_floats() const {
    size_t sum = 0;
    for (size_t i = 0; i < num_arrays; ++i) sum += lengths[i];
    return sum;
  }
};

// Walks along a row, piece by piece.
class Walk {
 public:
  explicit Walk(const Row& row) : row_(row) {}

  // Calls visit(input, output, factor, number of floats, floats of this piece before them) for each stretch of the
  // next piece.
  template <typename Visit>
  void next_piece(Visit visit) {
    size_t filled = 0;
    while (filled < kPieceFloats && array_ < row_.num_arrays) {
      const size_t left = row_.lengths[array_] - offset_;
      const size_t taken = std::min(left, kPieceFloats - filled);
      visit(row_.inputs[array_] + offset_, row_.outputs[array_] + offset_, row_.factors ? row_.factors[array_] : 1.0f,
            taken, filled);
      filled += taken;
      offset_ += taken;
      if (taken == left) {
        ++array_;
        offset_ = 0;
      }
    }
  }

 private:
  const Row& row_;
  size_t array_ = 0;
  size_t offset_ = 0;
};

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Copies past the caches, for the partner alone will read it. A plain store would first have to call back each line
// that the partner's core read a moment ago, and where the two cores do not share a cache that takes longer than all
// the rest: 102 MB took 12 ms where they do and 50 where not (AMD Zen 4; a virtual machine's cores change from one to
// the other), past the caches 18 and 12.
void copy_past_caches(const float* from, float* to, size_t num_floats) {
#if defined(__x86_64__)
  size_t i = 0;
  while (i < num_floats && reinterpret_cast<uintptr_t>(to + i) % 16 != 0) to[i] = from[i], ++i;
  for (; i + 4 <= num_floats; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  for (; i < num_floats; ++i) to[i] = from[i];
  _mm_sfence();  // such stores obey no release
#else
  std::memcpy(to, from, num_floats * sizeof(float));
#endif
}

void await(const std::atomic<uint64_t>& counter, uint64_t least) {
  for (int tries = 0; counter.load(std::memory_order_acquire) < least; ++tries) {
    if (tries < kPauses) {
      pause();
    } else if (tries < kPauses + kYields) {
      sched_yield();
    } else {
      tries = kPauses + kYields;
      usleep(kNapUs);
    }
  }
}

// output = (own + partners) * factor. The output may be own.
void add(const float* own, const float* partners, float factor, float* output, size_t num_floats) {
#pragma GCC ivdep
  for (size_t i = 0; i < num_floats; ++i) output[i] = (own[i] + partners[i]) * factor;
}

void post(Walk& walk, Desk& mine, uint64_t number) {
  if (number >= kSlots) await(mine.taken, number - kSlots + 1);
  float* slot = mine.slot(number);
  walk.next_piece([slot](const float* input, float*, float, size_t num_floats, size_t before) {
    copy_past_caches(input, slot + before, num_floats);
  });
  mine.posted.store(number + 1, std::memory_order_release);
}

void take(Walk& walk, Desk& partners, uint64_t number) {
  await(partners.posted, number + 1);
  const float* slot = partners.slot(number);
  walk.next_piece([slot](const float* input, float* output, float factor, size_t num_floats, size_t before) {
    add(input, slot + before, factor, output, num_floats);
  });
  partners.taken.store(number + 1, std::memory_order_release);
}

void add_partners(const Row& row, int round) {
  Desk& mine = exchange.desk(exchange.rank, round);
  Desk& partners = exchange.desk(exchange.rank ^ (1 << round), round);
  const uint64_t first = exchange.exchanged[round];
  const uint64_t end = first + (row.num_floats() + kPieceFloats - 1) / kPieceFloats;
  Walk posting(row), taking(row);
  uint64_t next = first;
  for (uint64_t number = first; number < end; ++number) {
    while (next < end && next < number + kSlots - 1) post(posting, mine, next++);
    take(taking, partners, number);
  }
  exchange.exchanged[round] = end;
}

int rounds_of(int num_ranks) {
  for (int rounds = 1; rounds <= kMaxRounds; ++rounds) {
    if (num_ranks == 1 << rounds) return rounds;
  }
  return 0;
}

}  // namespace

size_t rank_sums_memory_bytes(int num_ranks) {
  const int rounds = rounds_of(num_ranks);
  return rounds == 0 ? 0 : kHeadBytes + sizeof(Desk) * num_ranks * rounds;
}

int rank_sums_open(int descriptor, int rank, int num_ranks) {
  const size_t num_bytes = rank_sums_memory_bytes(num_ranks);
  struct stat found;
  if (fstat(descriptor, &found) != 0) return errno;
  if (num_bytes == 0 || rank < 0 || rank >= num_ranks || static_cast<size_t>(found.st_size) != num_bytes) {
    return EINVAL;
  }
  void* memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return errno;
  exchange = Exchange{};
  exchange.desks = reinterpret_cast<Desk*>(static_cast<char*>(memory) + kHeadBytes);
  exchange.rank = rank;
  exchange.num_rounds = rounds_of(num_ranks);
  return 0;
}

void rank_sums(const float* const* inputs, float* const* outputs, const int64_t* lengths, const float* factors,
               size_t num_arrays) {
  for (int round = 0; round < exchange.num_rounds; ++round) {
    const bool is_first = round == 0, is_last = round == exchange.num_rounds - 1;
    add_partners({is_first ? inputs : outputs, outputs, lengths, is_last ? factors : nullptr, num_arrays}, round);
  }
}
