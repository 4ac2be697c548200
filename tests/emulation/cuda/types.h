// Numbers of a GPU that C++ has none of: half floats, and vectors.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(bits));
  return value;
}

// Floats of two bytes. What is done with one is done with a float, and rounded once: to the nearest,
// of two the even one. g++ has a type of its own (_Float16) from version 12 on alone.
struct half {
  uint16_t bits;
  half() = default;
  half(float value) {
    uint32_t all = bits_of(value), sign = all >> 16 & 0x8000, size = all & 0x7fffffff;
    if (size > 0x7f800000)
      bits = 0x7fff;
    else if (size >= 0x477ff000)  // rounded, it is more than the largest
      bits = sign | 0x7c00;
    else if (size >= 0x38800000)
      bits = sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    else  // of a fixed number of digits: the addition rounds them
      bits = sign | uint16_t(bits_of(float_of(size) + 0.5f) - 0x3f000000);
  }
  operator float() const {
    uint32_t sign = uint32_t(bits & 0x8000) << 16, size = uint32_t(bits & 0x7fff) << 13;
    if (size >= 0x0f800000) return float_of(sign | (size + 0x70000000));
    // 2^112: what the exponents begin at.
    return float_of(sign | bits_of(float_of(size) * 0x1p112f));
  }
};
using __half = half;

struct nv_bfloat16 {
  uint16_t bits;
  nv_bfloat16() = default;
  nv_bfloat16(float value) {
    uint32_t all = bits_of(value);
    bits = value != value ? 0x7fff : uint16_t((all + 0x7fff + (all >> 16 & 1)) >> 16);
  }
  operator float() const { return float_of(uint32_t(bits) << 16); }
};
using __nv_bfloat16 = nv_bfloat16;

#define OPERATOR(T, sign) \
  inline T operator sign(T a, T b) { return T(float(a) sign float(b)); }
#define COMPARISON(T, sign, name)                                          \
  inline bool operator sign(T a, T b) { return float(a) sign float(b); }   \
  inline bool name(T a, T b) { return float(a) sign float(b); }
#define FUNCTION(T, name, of_floats) \
  inline T name(T a) { return T(of_floats(float(a))); }
#define SMALL_FLOAT(T)                                                                   \
  OPERATOR(T, +) OPERATOR(T, -) OPERATOR(T, *) OPERATOR(T, /)                            \
  inline T operator-(T a) { return T(-float(a)); }                                       \
  COMPARISON(T, >, __hgt) COMPARISON(T, <, __hlt) COMPARISON(T, >=, __hge)               \
  COMPARISON(T, <=, __hle) COMPARISON(T, ==, __heq) COMPARISON(T, !=, __hne)             \
  inline T __hmax(T a, T b) { return a > b ? a : b; }                                    \
  inline T __hmin(T a, T b) { return a < b ? a : b; }                                    \
  inline T __hfma(T a, T b, T c) { return T(fmaf(float(a), float(b), float(c))); }       \
  inline bool __hisnan(T a) { return float(a) != float(a); }                             \
  FUNCTION(T, __habs, fabsf) FUNCTION(T, hexp, expf) FUNCTION(T, hexp2, exp2f)           \
  FUNCTION(T, hlog, logf) FUNCTION(T, hlog2, log2f) FUNCTION(T, hlog10, log10f)          \
  FUNCTION(T, hsqrt, sqrtf) FUNCTION(T, hrsqrt, 1 / sqrtf) FUNCTION(T, hrcp, 1 /)        \
  FUNCTION(T, hsin, sinf) FUNCTION(T, hcos, cosf) FUNCTION(T, htanh, tanhf)              \
  FUNCTION(T, hfloor, floorf) FUNCTION(T, hceil, ceilf) FUNCTION(T, htrunc, truncf)      \
  FUNCTION(T, hrint, nearbyintf)
SMALL_FLOAT(half)
SMALL_FLOAT(nv_bfloat16)
#undef OPERATOR
#undef COMPARISON
#undef FUNCTION
#undef SMALL_FLOAT

inline float __half2float(half a) { return a; }
inline half __float2half(float a) { return half(a); }
inline half __float2half_rn(float a) { return half(a); }
inline float __bfloat162float(nv_bfloat16 a) { return a; }
inline nv_bfloat16 __float2bfloat16(float a) { return nv_bfloat16(a); }
inline nv_bfloat16 __float2bfloat16_rn(float a) { return nv_bfloat16(a); }

inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __clz(int a) { return a ? __builtin_clz(a) : 32; }
inline int __clzll(long long a) { return a ? __builtin_clzll(a) : 64; }

// Of one type; of three elements, a vector begins wherever an element does.
#define VECTORS(T, name)                                                                        \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                            \
  struct name##3 { T x, y, z; };                                                                \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; };            \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                    \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                            \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(signed char, char)
VECTORS(unsigned char, uchar)
VECTORS(short, short)
VECTORS(unsigned short, ushort)
VECTORS(int, int)
VECTORS(unsigned, uint)
VECTORS(long long, longlong)
VECTORS(unsigned long long, ulonglong)
VECTORS(float, float)
VECTORS(double, double)
#undef VECTORS

// TVM's code has the vectors of more of them.
struct alignas(4) half2 {
  half x, y;
  half2() = default;
  half2(half x, half y) : x(x), y(y) {}
};
inline half2 make_half2(half x, half y) { return {x, y}; }
using __half2 = half2;
struct alignas(4) nv_bfloat162 {
  nv_bfloat16 x, y;
  nv_bfloat162() = default;
  nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) : x(x), y(y) {}
};
using __nv_bfloat162 = nv_bfloat162;
