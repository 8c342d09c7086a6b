cdef extern from *:
    """
    #ifndef SOCSCHED_WORDS
    #define SOCSCHED_WORDS 1
    #endif
    #define SOCSCHED_LENGTH(value) (64LL - __builtin_clzll((unsigned long long)(value) | 1ULL))
    static inline long long socsched_image(double value) {
        union { double value; long long image; } both;
        both.value = value;
        return both.image;
    }
    /* products of 128 bits; results beyond 2**62 are 2**62, which is a time that never comes */
    static inline long long socsched_scaled(long long value, long long up, long long down) {
        long long small;
        __int128 large;
        if (down <= 0) return value;
        if (!__builtin_mul_overflow(value, up, &small) && !__builtin_add_overflow(small, down - 1, &small))
            large = small / down;
        else
            large = ((__int128)value * up + down - 1) / down;
        return large > (1LL << 62) ? 1LL << 62 : (long long)large;
    }
    static inline long long socsched_portion(long long value, long long up, long long down) {
        long long small;
        if (!__builtin_mul_overflow(value, up, &small)) return small / down;
        __int128 large = (__int128)value * up / down;
        return large > (1LL << 62) ? 1LL << 62 : (long long)large;
    }
    #define SOCSCHED_LARGER(a, b, c, d) ((__int128)(a) * (b) > (__int128)(c) * (d))
    #if SOCSCHED_WORDS == 1
    typedef unsigned long long socsched_lanes;
    #define SOCSCHED_NOTHING() 0ULL
    #define SOCSCHED_LANE(lane) (1ULL << (lane))
    #define SOCSCHED_COMMON(a, b) ((a) & (b))
    #define SOCSCHED_JOINED(a, b) ((a) | (b))
    #define SOCSCHED_WITHOUT(a, b) ((a) & ~(b))
    #define SOCSCHED_SOME(a) ((a) != 0)
    #define SOCSCHED_MEETS(a, b) (((a) & (b)) != 0)
    #define SOCSCHED_EQUAL(a, b) ((a) == (b))
    #define SOCSCHED_HAS(a, lane) ((long long)((a) >> (lane) & 1))
    #define SOCSCHED_BITS(a) ((long long)__builtin_popcountll(a))
    #define SOCSCHED_LOWEST(a) ((long long)__builtin_ctzll(a))
    #define SOCSCHED_WORD(a, which) ((long long)(a))
    #else
    typedef struct { unsigned long long word[SOCSCHED_WORDS]; } socsched_lanes;
    #define SOCSCHED_EACH for (int i = 0; i < SOCSCHED_WORDS; i++)
    static inline socsched_lanes SOCSCHED_NOTHING(void) {
        socsched_lanes a; SOCSCHED_EACH a.word[i] = 0; return a;
    }
    static inline socsched_lanes SOCSCHED_LANE(long long lane) {
        socsched_lanes a = SOCSCHED_NOTHING(); a.word[lane >> 6] = 1ULL << (lane & 63); return a;
    }
    static inline socsched_lanes SOCSCHED_COMMON(socsched_lanes a, socsched_lanes b) {
        SOCSCHED_EACH a.word[i] &= b.word[i]; return a;
    }
    static inline socsched_lanes SOCSCHED_JOINED(socsched_lanes a, socsched_lanes b) {
        SOCSCHED_EACH a.word[i] |= b.word[i]; return a;
    }
    static inline socsched_lanes SOCSCHED_WITHOUT(socsched_lanes a, socsched_lanes b) {
        SOCSCHED_EACH a.word[i] &= ~b.word[i]; return a;
    }
    static inline int SOCSCHED_SOME(socsched_lanes a) {
        unsigned long long found = 0; SOCSCHED_EACH found |= a.word[i]; return found != 0;
    }
    static inline int SOCSCHED_MEETS(socsched_lanes a, socsched_lanes b) {
        unsigned long long found = 0; SOCSCHED_EACH found |= a.word[i] & b.word[i]; return found != 0;
    }
    static inline int SOCSCHED_EQUAL(socsched_lanes a, socsched_lanes b) {
        unsigned long long found = 0; SOCSCHED_EACH found |= a.word[i] ^ b.word[i]; return found == 0;
    }
    static inline long long SOCSCHED_HAS(socsched_lanes a, long long lane) {
        return (long long)(a.word[lane >> 6] >> (lane & 63) & 1);
    }
    static inline long long SOCSCHED_BITS(socsched_lanes a) {
        long long found = 0; SOCSCHED_EACH found += __builtin_popcountll(a.word[i]); return found;
    }
    static inline long long SOCSCHED_LOWEST(socsched_lanes a) {
        int i = 0; while (a.word[i] == 0) i++; return i * 64LL + __builtin_ctzll(a.word[i]);
    }
    #define SOCSCHED_WORD(a, which) ((long long)(a).word[which])
    #endif
    """
    ctypedef struct Lanes "socsched_lanes":
        pass
    long long WORDS "SOCSCHED_WORDS"
    long long image "socsched_image" (double value) noexcept
    long long length "SOCSCHED_LENGTH" (long long value) noexcept
    long long scaled "socsched_scaled" (long long value, long long up, long long down) noexcept
    long long portion "socsched_portion" (long long value, long long up, long long down) noexcept
    long long larger "SOCSCHED_LARGER" (long long a, long long b, long long c, long long d) noexcept
    Lanes nothing "SOCSCHED_NOTHING" () noexcept
    Lanes lane_set "SOCSCHED_LANE" (long long lane) noexcept
    Lanes common "SOCSCHED_COMMON" (Lanes a, Lanes b) noexcept
    Lanes joined "SOCSCHED_JOINED" (Lanes a, Lanes b) noexcept
    Lanes without "SOCSCHED_WITHOUT" (Lanes a, Lanes b) noexcept
    long long some "SOCSCHED_SOME" (Lanes a) noexcept
    long long meets "SOCSCHED_MEETS" (Lanes a, Lanes b) noexcept
    long long equal "SOCSCHED_EQUAL" (Lanes a, Lanes b) noexcept
    long long has "SOCSCHED_HAS" (Lanes a, long long lane) noexcept
    long long bits "SOCSCHED_BITS" (Lanes a) noexcept
    long long lowest "SOCSCHED_LOWEST" (Lanes a) noexcept
    long long word "SOCSCHED_WORD" (Lanes a, long long which) noexcept

ctypedef Lanes *lane_sets
