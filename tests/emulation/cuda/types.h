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

// TVM's code has the vectors of more of them.
struct alignas(4) half2 { half x, y; };
inline half2 make_half2(half x, half y) { return {x, y}; }
using __half2 = half2;
