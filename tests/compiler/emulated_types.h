// Numbers of a GPU that C++ has none of: half floats, and vectors.
#pragma once

#include <cstdint>
#include <cstring>

struct half {
  uint16_t bits;
  half() = default;
  half(float value) {
    _Float16 number = static_cast<_Float16>(value);
    memcpy(&bits, &number, sizeof(bits));
  }
  operator float() const {
    _Float16 number;
    memcpy(&number, &bits, sizeof(bits));
    return static_cast<float>(number);
  }
};
using __half = half;

inline bool __hgt(half a, half b) { return float(a) > float(b); }
inline bool __hlt(half a, half b) { return float(a) < float(b); }
inline half operator+(half a, half b) { return half(float(a) + float(b)); }
inline half operator*(half a, half b) { return half(float(a) * float(b)); }
inline float __half2float(half a) { return a; }
inline half __float2half(float a) { return half(a); }
inline half __float2half_rn(float a) { return half(a); }

#define VECTOR2(T, name, bytes)                                  \
  struct alignas(bytes) name {                                   \
    T x, y;                                                      \
  };                                                             \
  inline name make_##name(T x, T y) { return {x, y}; }
#define VECTOR4(T, name, bytes)                                        \
  struct alignas(bytes) name {                                         \
    T x, y, z, w;                                                      \
  };                                                                   \
  inline name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTOR2(half, half2, 4)
VECTOR2(float, float2, 8)
VECTOR2(int, int2, 8)
VECTOR2(unsigned, uint2, 8)
VECTOR2(signed char, char2, 2)
VECTOR4(float, float4, 16)
VECTOR4(int, int4, 16)
VECTOR4(unsigned, uint4, 16)
VECTOR4(signed char, char4, 4)
VECTOR4(long long, longlong4, 16)
VECTOR2(long long, longlong2, 16)
using __half2 = half2;
