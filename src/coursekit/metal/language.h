// What a kernel in Metal's language finds, for a C++ compiler: address spaces, short floats, positions, mathematics.
// Whatever is missing here is an error of the compiler, with its line: add it when a kernel of the course needs it.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "machine.h"

#define device
#define constant
#define thread
// One copy for all threads of a group: groups run one after another. `machine.h` fills the section before each.
#define threadgroup static __attribute__((section("threadgroup_memory")))

namespace metal {

typedef unsigned int uint;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned long ulong;

struct uint2 {
    uint x, y;
};
using machine::uint3;

template <typename To, typename From>
To as_type(From x) {
    static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
    To y;
    std::memcpy(&y, &x, sizeof y);
    return y;
}

// A float in 16 bits, as memory holds it; it is computed with as float.
template <typename Format>
struct Short {
    uint16_t bits;
    Short() = default;
    Short(float x) : bits(Format::pack(x)) {}
    operator float() const { return Format::unpack(bits); }
    Short& operator+=(float x) { return *this = float(*this) + x; }
    Short& operator-=(float x) { return *this = float(*this) - x; }
    Short& operator*=(float x) { return *this = float(*this) * x; }
    Short& operator/=(float x) { return *this = float(*this) / x; }
};

struct Brain {  // the upper half of a float
    static float unpack(uint16_t bits) { return as_type<float>(uint32_t(bits) << 16); }
    static uint16_t pack(float x) {
        uint32_t bits = as_type<uint32_t>(x);
        if (std::isnan(x)) return uint16_t(bits >> 16 | 64);
        return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
};

struct Half {  // 5 bits of exponent, 10 of fraction
    static float unpack(uint16_t bits) {
        int exponent = bits >> 10 & 31, fraction = bits & 1023;
        float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                     : exponent     ? std::ldexp(float(1024 + fraction), exponent - 25)
                                    : std::ldexp(float(fraction), -24);
        return bits & 0x8000 ? -size : size;
    }
    static uint16_t pack(float x) {
        uint16_t sign = std::signbit(x) ? 0x8000 : 0;
        float size = std::fabs(x);
        if (std::isnan(x)) return sign | 0x7E00;
        if (size >= 65520) return sign | 0x7C00;
        int exponent;
        std::frexp(size, &exponent);
        bool tiny = size == 0 || exponent < -13;
        int step = tiny ? -24 : exponent - 11;  // between the numbers around x
        int count = int(std::nearbyint(std::ldexp(size, -step)));
        return sign | uint16_t(tiny ? count : count + ((exponent + 13) << 10));
    }
};

typedef Short<Half> half;
typedef half float16_t;
typedef Short<Brain> bfloat;
typedef bfloat bfloat16_t;

#define METAL_MATH(name) \
    inline float name(float x) { return std::name(x); }
METAL_MATH(exp) METAL_MATH(exp2) METAL_MATH(log) METAL_MATH(log2) METAL_MATH(sqrt) METAL_MATH(tanh)
METAL_MATH(sin) METAL_MATH(cos) METAL_MATH(floor) METAL_MATH(ceil) METAL_MATH(trunc) METAL_MATH(fabs)
#undef METAL_MATH
inline float rint(float x) { return std::nearbyint(x); }
inline float round(float x) { return std::round(x); }
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline float pow(float x, float y) { return std::pow(x, y); }
inline float fma(float x, float y, float z) { return std::fma(x, y, z); }
inline float fmin(float x, float y) { return std::fmin(x, y); }
inline float fmax(float x, float y) { return std::fmax(x, y); }
inline bool isnan(float x) { return std::isnan(x); }
inline bool isinf(float x) { return std::isinf(x); }
template <typename T>
T abs(T x) {
    return x < 0 ? T(-x) : x;
}
template <typename A, typename B>
std::common_type_t<A, B> min(A a, B b) {
    return b < a ? b : a;
}
template <typename A, typename B>
std::common_type_t<A, B> max(A a, B b) {
    return a < b ? b : a;
}
template <typename T, typename A, typename B>
T clamp(T x, A low, B high) {
    return min(max(x, T(low)), T(high));
}
template <typename T>
T select(T no, T yes, bool choice) {
    return choice ? yes : no;
}
namespace fast {
using metal::exp, metal::exp2, metal::log, metal::sqrt, metal::rsqrt, metal::tanh, metal::max, metal::min;
}
namespace precise = fast;

enum class mem_flags { mem_none, mem_device, mem_threadgroup };

// The number of a line is that of the call: all threads must come to the same one.
inline void threadgroup_barrier(mem_flags, int line = __builtin_LINE()) { machine::wait_for_group(line); }
inline void simdgroup_barrier(mem_flags, int line = __builtin_LINE()) { machine::wait_for_simdgroup(line); }

#define METAL_REDUCTION(name, combined)                       \
    template <typename T>                                     \
    T name(T own, int line = __builtin_LINE()) {              \
        machine::Values<T> values = machine::exchange(own, line); \
        bool first = true;                                    \
        T all = own;                                          \
        for (int lane = 0; lane < machine::LANES; ++lane) {   \
            if (!values.there(lane)) continue;                \
            T one = values.of(lane);                          \
            all = first ? one : T(combined);                  \
            first = false;                                    \
        }                                                     \
        return all;                                           \
    }
METAL_REDUCTION(simd_sum, all + one)
METAL_REDUCTION(simd_product, all * one)
METAL_REDUCTION(simd_max, metal::max(all, one))
METAL_REDUCTION(simd_min, metal::min(all, one))
#undef METAL_REDUCTION

template <typename T>
T simd_shuffle(T own, uint lane, int line = __builtin_LINE()) {
    return machine::exchange(own, line).of(lane % machine::LANES);
}
template <typename T>
T simd_broadcast(T own, uint lane, int line = __builtin_LINE()) {
    return simd_shuffle(own, lane, line);
}
template <typename T>
T simd_shuffle_xor(T own, uint mask, int line = __builtin_LINE()) {
    return simd_shuffle(own, machine::lane() ^ mask, line);
}
template <typename T>
T simd_shuffle_down(T own, uint by, int line = __builtin_LINE()) {
    uint from = machine::lane() + by;
    return simd_shuffle(own, from < machine::LANES ? from : machine::lane(), line);
}
template <typename T>
T simd_shuffle_up(T own, uint by, int line = __builtin_LINE()) {
    return simd_shuffle(own, machine::lane() >= by ? machine::lane() - by : machine::lane(), line);
}

}  // namespace metal
