cdef extern from *:
    """
    #define SOCSCHED_BITS(mask) ((long long)__builtin_popcountll((unsigned long long)(mask)))
    #define SOCSCHED_LENGTH(value) (64LL - __builtin_clzll((unsigned long long)(value) | 1ULL))
    static inline long long socsched_image(double value) {
        union { double value; long long image; } both;
        both.value = value;
        return both.image;
    }
    """
    long long image "socsched_image" (double value) noexcept
    long long bits "SOCSCHED_BITS" (long long mask) noexcept
    long long length "SOCSCHED_LENGTH" (long long value) noexcept

cdef long long scaled(long long value, long long up, long long down) noexcept
