/* Reads a stretch of a TFRecord file and checks both CRCs of its records, without the interpreter lock.

   It reports how many consecutive records are sound, and never why one is not: framing.py checks again from there, so
   that messages have one source. The library is optional: without it (another processor, no compiler) framing.py does
   all the work. native.py loads it; tools/native_library.py builds it.

   Layout of a record: shared/record_framing.py. CRC32C (Castagnoli) by carry-less multiplication: V. Gopal and others,
   "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009. Polynomials are written as
   CRC32C does, the highest power of x in the lowest bit. */

#include <errno.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define SSE __attribute__((target("sse4.2,pclmul")))
#define AVX512 __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

enum { HEADER_BYTES = 12, TRAILER_BYTES = 4, FRAME_BYTES = HEADER_BYTES + TRAILER_BYTES };
/* Bytes read at a time: they are still in the processor's cache when their CRC is taken. */
enum { PIECE_BYTES = 512 << 10 };
/* Bytes read at a time to find where records end: one read for many small records. */
enum { WINDOW_BYTES = 4 << 10 };

static const uint32_t POLYNOMIAL = 0x82f63b78; /* without x^32 */
static const uint32_t ONE = 0x80000000;

/* x^(8 * 2^i - 33): factor that carries a CRC over 2^i zero bytes, see `times`. */
static uint32_t doublings[64];
/* x^(bits + 63) and x^(bits - 1), for the two halves of 128 bits that are carried over 4 registers' bits. */
static uint64_t carry_128[2], carry_512[2];

static uint32_t power_of_x(int exponent)
{
    uint32_t power = ONE;
    for (; exponent > 0; exponent--)
        power = power >> 1 ^ (power & 1 ? POLYNOMIAL : 0);
    for (; exponent < 0; exponent++)
        power = power & ONE ? (power ^ POLYNOMIAL) << 1 | 1 : power << 1;
    return power;
}

/* a * b * x^33: the product has 63 bits, and the CRC instruction multiplies by x^32 and reads 64 bits. */
SSE static uint32_t times(uint32_t a, uint32_t b)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

int landfall_is_supported(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

int landfall_is_wide(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

static int is_wide;

__attribute__((constructor)) static void prepare(void)
{
    __builtin_cpu_init();
    if (!landfall_is_supported())
        return;
    is_wide = landfall_is_wide();
    doublings[0] = power_of_x(8 - 33);
    for (int i = 1; i < 64; i++)
        doublings[i] = times(doublings[i - 1], doublings[i - 1]);
    for (int half = 0; half < 2; half++) {
        carry_128[half] = (uint64_t)power_of_x(4 * 128 + (half ? -1 : 63)) << 32;
        carry_512[half] = (uint64_t)power_of_x(4 * 512 + (half ? -1 : 63)) << 32;
    }
}

/* The next four functions take and return the running bits of a CRC, without the final inversion. */

SSE static uint32_t over_words(uint32_t crc, const uint8_t *data, uint64_t size)
{
    uint64_t state = crc, word;
    for (; size >= sizeof word; size -= sizeof word, data += sizeof word) {
        memcpy(&word, data, sizeof word);
        state = _mm_crc32_u64(state, word);
    }
    crc = (uint32_t)state;
    while (size--)
        crc = _mm_crc32_u8(crc, *data++);
    return crc;
}

SSE static __m128i carried_128(__m128i register_, __m128i carry, const uint8_t *data)
{
    __m128i first = _mm_clmulepi64_si128(register_, carry, 0x00), second = _mm_clmulepi64_si128(register_, carry, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), _mm_loadu_si128((const __m128i *)data));
}

/* Four registers are folded over the data, each over every fourth piece; their own CRC is then that of the data. */
SSE static uint32_t over_registers_128(uint32_t crc, const uint8_t *data, uint64_t size)
{
    enum { EACH = sizeof(__m128i), ALL = 4 * EACH };
    __m128i registers[4], carry = _mm_loadu_si128((const __m128i *)carry_128);
    if (size < 4 * ALL)
        return over_words(crc, data, size);
    for (int i = 0; i < 4; i++)
        registers[i] = _mm_loadu_si128((const __m128i *)(data + i * EACH));
    registers[0] = _mm_xor_si128(registers[0], _mm_cvtsi32_si128((int)crc));
    for (data += ALL, size -= ALL; size >= ALL; data += ALL, size -= ALL)
        for (int i = 0; i < 4; i++)
            registers[i] = carried_128(registers[i], carry, data + i * EACH);
    return over_words(over_words(0, (const uint8_t *)registers, ALL), data, size);
}

AVX512 static __m512i carried_512(__m512i register_, __m512i carry, const uint8_t *data)
{
    __m512i first = _mm512_clmulepi64_epi128(register_, carry, 0x00);
    __m512i second = _mm512_clmulepi64_epi128(register_, carry, 0x11);
    return _mm512_xor_si512(_mm512_xor_si512(first, second), _mm512_loadu_si512(data));
}

AVX512 static uint32_t over_registers_512(uint32_t crc, const uint8_t *data, uint64_t size)
{
    enum { EACH = sizeof(__m512i), ALL = 4 * EACH };
    __m512i registers[4], carry = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)carry_512));
    if (size < 4 * ALL)
        return over_registers_128(crc, data, size);
    for (int i = 0; i < 4; i++)
        registers[i] = _mm512_loadu_si512(data + i * EACH);
    registers[0] = _mm512_xor_si512(registers[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (data += ALL, size -= ALL; size >= ALL; data += ALL, size -= ALL)
        for (int i = 0; i < 4; i++)
            registers[i] = carried_512(registers[i], carry, data + i * EACH);
    return over_words(over_words(0, (const uint8_t *)registers, ALL), data, size);
}

static uint32_t over(uint32_t crc, const uint8_t *data, uint64_t size)
{
    return is_wide ? over_registers_512(crc, data, size) : over_registers_128(crc, data, size);
}

/* For tests: the CRC32C of data by words (0), by registers of 128 bits (1) or of 512 bits (2). */
uint32_t landfall_crc32c(int way, uint32_t crc, const uint8_t *data, uint64_t size)
{
    uint32_t (*ways[])(uint32_t, const uint8_t *, uint64_t) = {over_words, over_registers_128, over_registers_512};
    return ~ways[way](~crc, data, size);
}

/* The CRC of two concatenated contents from the CRC of each, as in zlib's crc32_combine. */
static uint32_t combined(uint32_t first, uint32_t second, uint64_t second_size)
{
    for (int i = 0; second_size; second_size >>= 1, i++)
        if (second_size & 1)
            first = times(first, doublings[i]);
    return first ^ second;
}

static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static int64_t read_at(int file, uint8_t *memory, uint64_t size, uint64_t offset)
{
    for (;;) {
        ssize_t num_read = pread(file, memory, size, (off_t)offset);
        if (num_read >= 0 || errno != EINTR)
            return num_read;
    }
}

/* Finds whole records from `offset`, trusting their lengths. Returns their bytes: at least `wanted` where possible, and
   not more than `room` or than remain up to `size`; 0 where the first is too long, empty, cut, or unreadable. */
uint64_t landfall_find_end(
    int file, uint64_t offset, uint64_t size, uint64_t wanted, uint64_t room, uint64_t max_payload, uint64_t max_records)
{
    uint8_t window[WINDOW_BYTES];
    uint64_t window_begin = 0, window_end = 0, position = 0, length = 0;
    uint64_t available = size - offset < room ? size - offset : room;
    for (uint64_t i = 0; i < max_records && position < wanted && available - position >= FRAME_BYTES; i++) {
        if (window_end < position + sizeof length) {
            uint64_t wanted_bytes = length < sizeof window ? sizeof window : sizeof length; /* the next one is far away */
            int64_t num_read = read_at(file, window, wanted_bytes, offset + position);
            if (num_read < (int64_t)sizeof length)
                break;
            window_begin = position;
            window_end = position + (uint64_t)num_read;
        }
        memcpy(&length, window + (position - window_begin), sizeof length);
        if (!length || length > max_payload || length > available - position - FRAME_BYTES)
            break;
        position += FRAME_BYTES + length;
    }
    return position;
}

struct stretch {
    int file;
    uint64_t offset;
    uint64_t size;
    uint8_t *memory;
    uint64_t num_read;
};

/* Reads until the first `size` bytes of a stretch are in memory. Returns 0 where that fails. */
static int is_read(struct stretch *stretch, uint64_t size)
{
    while (stretch->num_read < size) {
        uint64_t missing = stretch->size - stretch->num_read;
        uint64_t piece = missing < PIECE_BYTES ? missing : PIECE_BYTES;
        int64_t num_read =
            read_at(stretch->file, stretch->memory + stretch->num_read, piece, stretch->offset + stretch->num_read);
        if (num_read <= 0)
            return 0;
        stretch->num_read += (uint64_t)num_read;
    }
    return 1;
}

/* Takes the CRC of memory while it is being read. Returns 0 where reading fails. */
static int crc_while_read(struct stretch *stretch, uint64_t begin, uint64_t end, uint32_t *crc)
{
    uint32_t state = ~0u;
    while (begin < end) {
        if (!is_read(stretch, begin + 1))
            return 0;
        uint64_t stop = stretch->num_read < end ? stretch->num_read : end;
        state = over(state, stretch->memory + begin, stop - begin);
        begin = stop;
    }
    *crc = ~state;
    return 1;
}

struct findings {
    uint64_t num_records;
    uint64_t num_bytes;
    uint32_t content_crc;
};

/* Reads `size` bytes from `offset` into memory, and checks the records that they consist of. Stops before the first
   record that is not sound, too long, empty or unreadable. `ends` receives where each record ends. */
void landfall_check(
    int file, uint64_t offset, uint64_t size, uint8_t *memory, uint64_t max_payload, uint64_t max_records, uint32_t *ends,
    struct findings *findings)
{
    struct stretch stretch = {.file = file, .offset = offset, .size = size, .memory = memory, .num_read = 0};
    uint64_t begin = 0, length, num_records = 0;
    uint32_t length_crc, stored_crc, payload_crc, content_crc = 0;
    while (num_records < max_records && size - begin >= FRAME_BYTES && is_read(&stretch, begin + HEADER_BYTES)) {
        const uint8_t *header = memory + begin;
        memcpy(&length, header, sizeof length);
        memcpy(&length_crc, header + sizeof length, sizeof length_crc);
        if (!length || length > max_payload || length > size - begin - FRAME_BYTES)
            break;
        if (masked(~over_words(~0u, header, sizeof length)) != length_crc)
            break;
        uint64_t payload = begin + HEADER_BYTES, trailer = payload + length, end = trailer + TRAILER_BYTES;
        if (!crc_while_read(&stretch, payload, trailer, &payload_crc) || !is_read(&stretch, end))
            break;
        memcpy(&stored_crc, memory + trailer, sizeof stored_crc);
        if (masked(payload_crc) != stored_crc)
            break;
        content_crc = ~over_words(~content_crc, header, HEADER_BYTES);
        content_crc = combined(content_crc, payload_crc, length);
        content_crc = ~over_words(~content_crc, memory + trailer, TRAILER_BYTES);
        ends[num_records++] = (uint32_t)end;
        begin = end;
    }
    *findings = (struct findings){.num_records = num_records, .num_bytes = begin, .content_crc = content_crc};
}
