// What TVM's CUDA source needs to run on a CPU: a block's threads one after another, from one
// barrier, or one exchange within a warp, to the next.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
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
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __align__(n) alignas(n)

inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }

struct Triple {
  int x, y, z;
};
static Triple threadIdx, blockIdx;

namespace emulated {

constexpr int WARP = 32;
constexpr size_t STACK = 512 << 10;
// Of memory that nothing was written to.
constexpr int UNWRITTEN = 0x7f;

enum class State { RUNS, AT_BARRIER, AT_WARP, ENDED };

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Triple index;
  State state = State::RUNS;
  // Where in the source it waits.
  int line = 0;
  // What it gives to the other threads of its warp, of which lane it wants that, and what it gets:
  // that, and which lanes are there.
  uint64_t given = 0, taken = 0;
  int lane = 0;
  unsigned present = 0;
  // What its warp was called for: the same for all of its threads.
  uint64_t trail = 0;
  // What ends each copy that it has begun: those of no group yet, and of groups, the oldest first.
  std::vector<std::function<void()>> begun;
  std::deque<std::vector<std::function<void()>>> groups;
};

static ucontext_t scheduler;
static Thread *current, *threads_begin;
// Kernels so far, and turns of the threads of a block from one barrier to the next.
static long launches, rounds;
static const std::function<void()>* kernel;

// Shared memory that keeps its place from block to block.
static std::map<void*, size_t> memory;

inline void shared(void* begin, size_t bytes) {
  memory[begin] = bytes;
  memset(begin, UNWRITTEN, bytes);
}

// What a thread did wrong. An exception does not leave the stack of the thread.
static std::string wrong;

inline void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

inline void pause(State state) {
  current->state = state;
  swapcontext(&current->context, &scheduler);
}

inline void begin() {
  try {
    (*kernel)();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  pause(State::ENDED);
}

inline int lane() { return (current - threads_begin) % WARP; }

inline bool leads() { return lane() == 0; }

inline void collective(const void* pointer, uint64_t more) {
  current->trail = current->trail * 1000003 + reinterpret_cast<uint64_t>(pointer) * 31 + more;
}

// The threads of a warp that wait for one another go on, those at the earliest place. Whether any did.
inline bool met(Thread* begin, Thread* end) {
  int line = 0;
  for (Thread* t = begin; t != end; ++t)
    if (t->state == State::AT_WARP && (!line || t->line < line)) line = t->line;
  if (!line) return false;
  unsigned present = 0;
  auto waits = [&](int lane) {
    return begin + lane < end && begin[lane].state == State::AT_WARP && begin[lane].line == line;
  };
  for (int lane = 0; lane < WARP; ++lane) present |= unsigned(waits(lane)) << lane;
  for (int lane = 0; lane < WARP; ++lane) {
    if (!(present >> lane & 1)) continue;
    Thread& t = begin[lane];
    // What a lane that is not there would give is undefined.
    memset(&t.taken, UNWRITTEN, sizeof(t.taken));
    if (present >> t.lane & 1) t.taken = begin[t.lane].given;
    t.present = present;
  }
  for (int lane = 0; lane < WARP; ++lane)
    if (present >> lane & 1) begin[lane].state = State::RUNS;
  return true;
}

// The threads of a block, to its end.
inline void run(std::vector<Thread>& threads) {
  int count = threads.size();
  for (;;) {
    for (Thread& t : threads) {
      if (t.state != State::RUNS) continue;
      current = &t;
      threadIdx = t.index;
      swapcontext(&scheduler, &t.context);
      expect(wrong.empty(), wrong.c_str());
    }
    bool goes_on = false;
    for (int warp = 0; warp < count; warp += WARP)
      goes_on |= met(&threads[warp], threads.data() + min(count, warp + WARP));
    if (goes_on) continue;
    ++rounds;
    for (Thread& t : threads) {
      expect(t.state == threads[0].state, "a barrier that not all threads reach");
      expect(t.line == threads[0].line || t.state == State::ENDED, "threads at several barriers");
    }
    if (threads[0].state == State::ENDED) return;
    for (Thread& t : threads) t.state = State::RUNS;
  }
}

// All blocks, one after another.
inline void launch(int blocks, Triple extents, const std::function<void()>& body) {
  kernel = &body;
  ++launches;
  int count = extents.x * extents.y * extents.z;
  std::vector<std::unique_ptr<char[]>> stacks(count);
  for (auto& stack : stacks) stack.reset(new char[STACK]);
  for (int block = 0; block < blocks; ++block) {
    blockIdx = {block, 0, 0};
    // Numbers that no block before has left.
    for (auto [begin, bytes] : memory) memset(begin, UNWRITTEN, bytes);
    std::vector<Thread> threads(count);
    threads_begin = threads.data();
    for (int i = 0; i < count; ++i) {
      Thread& t = threads[i];
      t.index = {i % extents.x, i / extents.x % extents.y, i / extents.x / extents.y};
      getcontext(&t.context);
      t.context.uc_stack.ss_sp = stacks[i].get();
      t.context.uc_stack.ss_size = STACK;
      t.context.uc_link = nullptr;
      makecontext(&t.context, begin, 0);
    }
    run(threads);
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

inline void barrier(int line) {
  current->line = line;
  pause(State::AT_BARRIER);
}

// Waits for the other threads of a warp that come here.
inline void meet(int line, uint64_t given, int lane) {
  current->line = line, current->given = given, current->lane = lane;
  pause(State::AT_WARP);
}

inline unsigned present(int line) {
  meet(line, 0, 0);
  return current->present;
}

// What another lane of the same group of `width` gives; what a thread gives itself where none is.
template <class T>
T shuffled(int line, unsigned mask, T value, int to, int width) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a number of 8 bytes at most");
  int own = lane(), group = own / width;
  uint64_t bytes = 0;
  memcpy(&bytes, &value, sizeof(T));
  meet(line, bytes, to >= 0 && to / width == group ? to : own);
  expect(current->present == mask, "a shuffle that not all threads of its mask reach");
  memcpy(&value, &current->taken, sizeof(T));
  return value;
}

}  // namespace emulated

#define __syncthreads() emulated::barrier(__LINE__)
#define __activemask() emulated::present(__LINE__)
#define SHUFFLED(mask, value, to, width) \
  emulated::shuffled(__LINE__, mask, emulated::plain(value), to, width)
#define __shfl_sync(mask, value, of, width) \
  SHUFFLED(mask, value, emulated::lane() / width * width + of % width, width)
#define __shfl_down_sync(mask, value, by, width) SHUFFLED(mask, value, emulated::lane() + by, width)
#define __shfl_up_sync(mask, value, by, width) SHUFFLED(mask, value, emulated::lane() - by, width)
