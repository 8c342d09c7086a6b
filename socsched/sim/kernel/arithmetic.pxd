cdef extern from *:
    """
    #ifndef SOCSCHED_WORDS
    #define SOCSCHED_WORDS 1
    #endif
    #define SOCSCHED_BIT_LENGTH(value) (64LL - __builtin_clzll((unsigned long long)(value) | 1ULL))
    static inline long long socsched_float_bits(double value) {
        union { double value; long long image; } both;
        both.value = value;
        return both.image;
    }
    /* products of 128 bits; results beyond 2**62 are 2**62, which is a time that never comes */
    static inline long long socsched_scale_ceil(long long value, long long up, long long down) {
        long long small;
        __int128 large;
        if (down <= 0) return value;
        if (!__builtin_mul_overflow(value, up, &small) && !__builtin_add_overflow(small, down - 1, &small))
            large = small / down;
        else
            large = ((__int128)value * up + down - 1) / down;
        return large > (1LL << 62) ? 1LL << 62 : (long long)large;
    }
    static inline long long socsched_scale_floor(long long value, long long up, long long down) {
        long long small;
        if (!__builtin_mul_overflow(value, up, &small)) return small / down;
        __int128 large = (__int128)value * up / down;
        return large > (1LL << 62) ? 1LL << 62 : (long long)large;
    }
    #define SOCSCHED_PRODUCT_EXCEEDS(a, b, c, d) ((__int128)(a) * (b) > (__int128)(c) * (d))
    #if SOCSCHED_WORDS == 1
    typedef unsigned long long socsched_slots;
    #define SOCSCHED_NO_SLOTS() 0ULL
    #define SOCSCHED_SLOT(slot) (1ULL << (slot))
    #define SOCSCHED_INTERSECT(a, b) ((a) & (b))
    #define SOCSCHED_UNITE(a, b) ((a) | (b))
    #define SOCSCHED_SUBTRACT(a, b) ((a) & ~(b))
    #define SOCSCHED_HAS_ANY(a) ((a) != 0)
    #define SOCSCHED_OVERLAP(a, b) (((a) & (b)) != 0)
    #define SOCSCHED_EQUAL(a, b) ((a) == (b))
    #define SOCSCHED_CONTAINS(a, slot) ((long long)((a) >> (slot) & 1))
    #define SOCSCHED_COUNT_SLOTS(a) ((long long)__builtin_popcountll(a))
    #define SOCSCHED_FIRST_SLOT(a) ((long long)__builtin_ctzll(a))
    #define SOCSCHED_WORD(a, which) ((long long)(a))
    #else
    typedef struct { unsigned long long word[SOCSCHED_WORDS]; } socsched_slots;
    #define SOCSCHED_EACH for (int i = 0; i < SOCSCHED_WORDS; i++)
    static inline socsched_slots SOCSCHED_NO_SLOTS(void) {
        socsched_slots a; SOCSCHED_EACH a.word[i] = 0; return a;
    }
    static inline socsched_slots SOCSCHED_SLOT(long long slot) {
        socsched_slots a = SOCSCHED_NO_SLOTS(); a.word[slot >> 6] = 1ULL << (slot & 63); return a;
    }
    static inline socsched_slots SOCSCHED_INTERSECT(socsched_slots a, socsched_slots b) {
        SOCSCHED_EACH a.word[i] &= b.word[i]; return a;
    }
    static inline socsched_slots SOCSCHED_UNITE(socsched_slots a, socsched_slots b) {
        SOCSCHED_EACH a.word[i] |= b.word[i]; return a;
    }
    static inline socsched_slots SOCSCHED_SUBTRACT(socsched_slots a, socsched_slots b) {
        SOCSCHED_EACH a.word[i] &= ~b.word[i]; return a;
    }
    static inline int SOCSCHED_HAS_ANY(socsched_slots a) {
        unsigned long long found = 0; SOCSCHED_EACH found |= a.word[i]; return found != 0;
    }
    static inline int SOCSCHED_OVERLAP(socsched_slots a, socsched_slots b) {
        unsigned long long found = 0; SOCSCHED_EACH found |= a.word[i] & b.word[i]; return found != 0;
    }
    static inline int SOCSCHED_EQUAL(socsched_slots a, socsched_slots b) {
        unsigned long long found = 0; SOCSCHED_EACH found |= a.word[i] ^ b.word[i]; return found == 0;
    }
    static inline long long SOCSCHED_CONTAINS(socsched_slots a, long long slot) {
        return (long long)(a.word[slot >> 6] >> (slot & 63) & 1);
    }
    static inline long long SOCSCHED_COUNT_SLOTS(socsched_slots a) {
        long long found = 0; SOCSCHED_EACH found += __builtin_popcountll(a.word[i]); return found;
    }
    static inline long long SOCSCHED_FIRST_SLOT(socsched_slots a) {
        int i = 0; while (a.word[i] == 0) i++; return i * 64LL + __builtin_ctzll(a.word[i]);
    }
    #define SOCSCHED_WORD(a, which) ((long long)(a).word[which])
    #endif
    """
    ctypedef struct SlotSet "socsched_slots":
        pass
    long long WORDS "SOCSCHED_WORDS"
    long long float_bits "socsched_float_bits" (double value) noexcept
    long long bit_length "SOCSCHED_BIT_LENGTH" (long long value) noexcept
    long long scale_ceil "socsched_scale_ceil" (long long value, long long up, long long down) noexcept
    long long scale_floor "socsched_scale_floor" (long long value, long long up, long long down) noexcept
    long long product_exceeds "SOCSCHED_PRODUCT_EXCEEDS" (long long a, long long b, long long c, long long d) noexcept
    SlotSet no_slots "SOCSCHED_NO_SLOTS" () noexcept
    SlotSet slot_set "SOCSCHED_SLOT" (long long slot) noexcept
    SlotSet intersect "SOCSCHED_INTERSECT" (SlotSet a, SlotSet b) noexcept
    SlotSet unite "SOCSCHED_UNITE" (SlotSet a, SlotSet b) noexcept
    SlotSet subtract "SOCSCHED_SUBTRACT" (SlotSet a, SlotSet b) noexcept
    long long has_any "SOCSCHED_HAS_ANY" (SlotSet a) noexcept
    long long overlap "SOCSCHED_OVERLAP" (SlotSet a, SlotSet b) noexcept
    long long equal "SOCSCHED_EQUAL" (SlotSet a, SlotSet b) noexcept
    long long contains "SOCSCHED_CONTAINS" (SlotSet a, long long slot) noexcept
    long long count_slots "SOCSCHED_COUNT_SLOTS" (SlotSet a) noexcept
    long long first_slot "SOCSCHED_FIRST_SLOT" (SlotSet a) noexcept
    long long word "SOCSCHED_WORD" (SlotSet a, long long which) noexcept

ctypedef SlotSet *slot_sets
