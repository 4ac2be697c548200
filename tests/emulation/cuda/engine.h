// What TVM's CUDA source needs to run on a CPU: the threads of a block one after another, from one
// barrier, or one exchange within a warp, to the next. Kernels are compiled with this header and
// linked with engine.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#define CUDART_INF_F HUGE_VALF
#define CUDART_INF HUGE_VAL
#define CUDART_NAN_F NAN
#define CUDART_NAN double(NAN)

// Of CUDA's compiler, when it compiles for a GPU from sm_80 on.
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDA_ARCH__ 800

using uchar = unsigned char;
using uint = unsigned;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __align__(n) alignas(n)

inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }

struct Triple {
  int x, y, z;
};
extern Triple threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

// Of memory that nothing was written to.
constexpr int UNWRITTEN = 0x7f;

// Ends the kernel with an error.
[[noreturn]] void fail(const char* what);

inline void expect(bool holds, const char* what) {
  if (__builtin_expect(!holds, false)) fail(what);
}

// What was last done to some bytes, and by whom; `engine.cpp` says how it is written.
struct Touched {
  uint64_t read, written;
};

// Memory that knows its bounds and who touches it. There is one `Touched` for 2^`shift` bytes, and
// in shared memory one number for copies to it that run by themselves and were not waited for.
struct Region {
  char* data = nullptr;
  long bytes = 0;
  Touched* touched = nullptr;
  uint64_t* copied = nullptr;
  int shift = 0;
};

// Where to read or write; an error where that is out of bounds, askew or a race.
const char* reading(const Region& region, long begin, long bytes, long alignment);
char* writing(const Region& region, long begin, long bytes, long alignment);
// Copies that run by themselves (`cp.async`), in groups.
void begin_copy(const Region& to, long at, const Region& from, long first, long bytes);
void commit_copies();
void wait_for_copies(size_t left);

// A static array of the shared memory of a block, from a byte on, and what a launch asked for besides.
Region shared_region(long begin, long bytes, int element);
Region dynamic_region(int element);

void barrier(int line);
// Waits for the other threads of a warp that come here, and tells which they are.
unsigned present(int line);
// What another lane of the same group of `width` gives; what a thread gives itself where none is.
uint64_t exchanged(int line, unsigned mask, uint64_t given, int to, int width);
int lane();
inline bool leads() { return lane() == 0; }
// Called by all threads of a warp, with the same.
void collective(const void* pointer, uint64_t more);

// What a launch says.
struct Launch {
  Triple grid, block;
  long dynamic_shared;
  // Where each argument is.
  void** arguments;
  int device;
};

// What is known of a kernel: how it is run, its name, bytes of its arguments, of its static shared
// memory, the most threads of a block (0: no limit of its own), whether threads wait for others.
struct Kernel {
  void (*run)(const Kernel&, const Launch&);
  const char* name;
  int arguments;
  const int* sizes;
  long static_shared;
  int most_threads;
  bool pauses;
};

// Runs `thread` for all threads of all blocks, one block after another. A std::runtime_error says
// what a thread did wrong.
void run_blocks(const Kernel& kernel, const Launch& launch, void (*thread)(void*), void* given);

// Memory that kernels may be given pointers into. An address may stand for other memory.
constexpr int ALL_DEVICES = -1;
void add_memory(void* address, long bytes, char* data, int device);
inline void add_memory(void* address, long bytes) {
  add_memory(address, bytes, static_cast<char*>(address), ALL_DEVICES);
}
void remove_memory(void* address);
struct Found {
  char* data = nullptr;
  // To the end of what was allocated.
  long bytes = 0;
};
Found find_memory(const void* address, int device);

// A pointer that a kernel is given: to elements of so many bytes.
struct Pointer {
  void* address;
  int element;
  Region* region;
};
// Finds the memory of all pointers of a launch.
void find_regions(Pointer* pointers, int count, int device);

// Kernels without a driver: what went wrong in those that `host` runs, nullptr if nothing did. It
// says itself what memory there is, which is forgotten after it.
const char* outcome(void (*host)(void**), void** given);
// Memory that one kernel leaves for the next.
void* between(size_t bytes);

}  // namespace emulated

#define __syncthreads() emulated::barrier(__LINE__)
#define __activemask() emulated::present(__LINE__)
#define SHUFFLED(mask, value, to, width) \
  emulated::shuffled(__LINE__, mask, emulated::plain(value), to, width)
#define __shfl_sync(mask, value, of, width) \
  SHUFFLED(mask, value, emulated::lane() / width * width + of % width, width)
#define __shfl_down_sync(mask, value, by, width) SHUFFLED(mask, value, emulated::lane() + by, width)
#define __shfl_up_sync(mask, value, by, width) SHUFFLED(mask, value, emulated::lane() - by, width)
