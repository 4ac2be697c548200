// What TVM's CUDA source needs to run on a CPU: a block's threads one after another, from one
// barrier to the next.
//
// A warp's fragments are whole matrices here, which the first of its threads holds: what the others
// are given must be the same. How a GPU spreads fragments over threads is not looked at.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <vector>

#define CUDART_INF_F HUGE_VALF
#define CUDART_INF HUGE_VAL
#define CUDART_NAN_F NAN
#define CUDART_NAN double(NAN)

using uchar = unsigned char;
using uint = unsigned;
using std::max;
using std::min;

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(n)
#define __align__(n) alignas(n)

struct Triple {
  int x, y, z;
};
static Triple threadIdx, blockIdx;

namespace emulated {

constexpr int WARP = 32;
constexpr size_t STACK = 512 << 10;

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Triple index;
  bool done = false;
  // What its warp was called for: the same for all of its threads.
  uint64_t trail = 0;
};

static ucontext_t scheduler;
static Thread *current, *threads_begin;
// Kernels so far, and turns of the threads of a block from one barrier to the next.
static long launches, rounds;
static const std::function<void()>* kernel;
alignas(64) static char dynamic[1 << 20];

static std::map<void*, size_t> memory;

inline void shared(void* begin, size_t bytes) { memory[begin] = bytes; }

// What a thread did wrong. An exception does not leave the stack of the thread.
static std::string wrong;

inline void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

inline void begin() {
  try {
    (*kernel)();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  current->done = true;
  swapcontext(&current->context, &scheduler);
}

inline bool leads() { return threadIdx.x % WARP == 0; }

inline void collective(const void* pointer, uint64_t more) {
  current->trail = current->trail * 1000003 + reinterpret_cast<uint64_t>(pointer) * 31 + more;
}

// All blocks, threads in ascending or in descending order.
inline void launch(int blocks, Triple extents, bool descending, const std::function<void()>& body) {
  kernel = &body;
  ++launches;
  int count = extents.x * extents.y * extents.z;
  for (int block = 0; block < blocks; ++block) {
    blockIdx = {block, 0, 0};
    // Numbers that no block before has left.
    memset(dynamic, 0x7f, sizeof(dynamic));
    for (auto [begin, bytes] : memory) memset(begin, 0x7f, bytes);
    std::vector<Thread> threads(count);
    threads_begin = threads.data();
    for (int i = 0; i < count; ++i) {
      Thread& t = threads[i];
      t.index = {i % extents.x, i / extents.x % extents.y, i / extents.x / extents.y};
      t.stack.reset(new char[STACK]);
      getcontext(&t.context);
      t.context.uc_stack.ss_sp = t.stack.get();
      t.context.uc_stack.ss_size = STACK;
      t.context.uc_link = nullptr;
      makecontext(&t.context, begin, 0);
    }
    for (int left = count; left;) {
      int ended = 0;
      ++rounds;
      for (int i = 0; i < count; ++i) {
        current = &threads[descending ? count - 1 - i : i];
        threadIdx = current->index;
        swapcontext(&scheduler, &current->context);
        ended += current->done;
        expect(wrong.empty(), wrong.c_str());
      }
      expect(ended == 0 || ended == count, "a barrier that not all threads reach");
      left = count - ended;
    }
    for (int i = 0; i < count; ++i)
      expect(threads[i].trail == threads[i / WARP * WARP].trail, "a warp that goes several ways");
  }
}

// What went wrong in kernels, nullptr if nothing did.
inline const char* outcome(const std::function<void()>& kernels) {
  static std::string told;
  wrong.clear();
  try {
    kernels();
  } catch (const std::exception& error) {
    told = error.what();
    return told.c_str();
  }
  return nullptr;
}

}  // namespace emulated

inline void __syncthreads() {
  swapcontext(&emulated::current->context, &emulated::scheduler);
}

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

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K>
struct shape;
template <int M, int N, int K>
struct shape<matrix_a, M, N, K> {
  static constexpr int rows = M, columns = K;
};
template <int M, int N, int K>
struct shape<matrix_b, M, N, K> {
  static constexpr int rows = K, columns = N;
};
template <int M, int N, int K>
struct shape<accumulator, M, N, K> {
  static constexpr int rows = M, columns = N;
};

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment : shape<Use, M, N, K> {
  T x[shape<Use, M, N, K>::rows][shape<Use, M, N, K>::columns];
};

template <class T>
void aligned(const T* pointer, unsigned rows_apart) {
  emulated::expect(reinterpret_cast<uint64_t>(pointer) % 16 == 0, "a fragment that begins askew");
  emulated::expect(rows_apart * sizeof(T) % 16 == 0, "rows of a fragment that begin askew");
}

template <class U, int M, int N, int K, class T, class L, class V>
void fill_fragment(fragment<U, M, N, K, T, L>& f, V value) {
  for (auto& row : f.x)
    for (auto& each : row) each = T(value);
}

template <class U, int M, int N, int K, class T, class L>
void load_matrix_sync(fragment<U, M, N, K, T, L>& f, const T* from, unsigned apart) {
  aligned(from, apart);
  emulated::collective(from, apart);
  if (!emulated::leads()) return;
  constexpr bool across = std::is_same_v<L, col_major>;
  for (int i = 0; i < f.rows; ++i)
    for (int j = 0; j < f.columns; ++j) f.x[i][j] = across ? from[j * apart + i] : from[i * apart + j];
}

template <int M, int N, int K, class T>
void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& f, unsigned apart, layout_t) {
  aligned(to, apart);
  emulated::collective(to, apart);
  if (!emulated::leads()) return;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) to[i * apart + j] = f.x[i][j];
}

template <int M, int N, int K, class T, class LA, class LB, class S>
void mma_sync(fragment<accumulator, M, N, K, S>& d, const fragment<matrix_a, M, N, K, T, LA>& a,
              const fragment<matrix_b, M, N, K, T, LB>& b,
              const fragment<accumulator, M, N, K, S>& c) {
  emulated::collective(nullptr, 1);
  if (!emulated::leads()) return;
  using Wide = std::conditional_t<std::is_same_v<S, int>, int, float>;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      Wide sum = c.x[i][j];
      for (int k = 0; k < K; ++k) sum += Wide(a.x[i][k]) * Wide(b.x[k][j]);
      d.x[i][j] = S(sum);
    }
}

}  // namespace nvcuda::wmma
