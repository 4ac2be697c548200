// Memory of a GPU that knows who touches it: indices are held against its bounds, and two threads
// that touch one element, one of them to write, with nothing between them that orders these, are a
// race. Within a block a barrier orders, between blocks only the end of the kernel does.
#pragma once

#include <type_traits>

#include "emulated_cuda.h"
#include "emulated_types.h"

namespace emulated {

// What was last done to an element in this kernel, and by whom.
struct Access {
  long launch = -1, round = -1;
  int block = -1, thread = -1;
  bool others = false, other_blocks = false;

  // Each block has shared memory of its own.
  bool now(bool is_shared) const {
    return launch == launches && (!is_shared || block == blockIdx.x);
  }

  // Whether something done by another thread is not ordered before what is done now.
  bool unordered(bool is_shared) const {
    if (!now(is_shared)) return false;
    if (block != blockIdx.x || other_blocks) return true;
    return round == rounds && (thread != number() || others);
  }

  void note(bool is_shared) {
    bool again = now(is_shared), same_round = again && round == rounds;
    others = same_round && (others || thread != number());
    other_blocks = again && (other_blocks || block != blockIdx.x);
    launch = launches, round = rounds, block = blockIdx.x, thread = number();
  }

  static int number() { return static_cast<int>(current - threads_begin); }
};

struct Touched {
  Access read, written;
  // A copy to it that runs by itself and has not been waited for.
  Access copied;
};

template <class T>
class Memory;

// Where something begins in memory, as a pointer says it.
template <class T>
struct Place {
  const Memory<T>& memory;
  long at;
};

template <class T, class Kept>
class Element {
 public:
  Element(const Memory<Kept>& memory, long at) : memory(memory), at(at) {}
  operator T() const { return memory.template read<T>(at); }
  template <class U, class = std::enable_if_t<std::is_arithmetic_v<U> && !std::is_same_v<T, U>>>
  explicit operator U() const {
    return static_cast<U>(T(*this));
  }
  T operator=(T value) const {
    memory.template write<T>(at, value);
    return value;
  }
  T operator=(const Element& other) const { return *this = T(other); }
  Place<Kept> operator&() const { return {memory, at}; }

 private:
  const Memory<Kept>& memory;
  long at;
};

// Elements of one type, which may be looked at as others of other sizes. `at` counts the former.
template <class T>
class Memory {
 public:
  Memory(void* begin, long size, bool is_shared = false)
      : data(static_cast<T*>(begin)), size(size), is_shared(is_shared),
        touched(std::make_shared<std::vector<Touched>>(size)) {}

  Element<T, T> operator[](long at) const { return {*this, at}; }
  Place<T> operator+(long at) const { return {*this, at}; }
  const T* at(long number) const { return data + number; }

  template <class V>
  V read(long at) const {
    for (long i = at; i < end<V>(at); ++i) {
      Touched& here = (*touched)[i];
      expect_copied(here);
      expect(!here.written.unordered(is_shared), "an element that is read while another thread writes it");
      here.read.note(is_shared);
    }
    V value;
    memcpy(&value, data + at, sizeof(V));
    return value;
  }
  template <class V>
  void write(long at, V value) const {
    for (long i = at; i < end<V>(at); ++i) writable(i).written.note(is_shared);
    memcpy(data + at, &value, sizeof(V));
  }
  template <class V>
  void begin_copy(long at) const {
    for (long i = at; i < end<V>(at); ++i) writable(i).copied.note(is_shared);
  }
  template <class V>
  void end_copy(long at, V value) const {
    for (long i = at; i < end<V>(at); ++i) (*touched)[i].copied = {};
    write(at, value);
  }

 private:
  void expect_copied(const Touched& here) const {
    expect(!here.copied.now(is_shared), "an element that is touched before the copy to it was waited for");
  }
  Touched& writable(long at) const {
    Touched& here = (*touched)[at];
    expect_copied(here);
    expect(!here.written.unordered(is_shared), "an element that two threads write");
    expect(!here.read.unordered(is_shared), "an element that is written while another thread reads it");
    return here;
  }
  template <class V>
  long end(long at) const {
    static_assert(sizeof(V) % sizeof(T) == 0, "parts of elements are not told apart");
    long after = at + sizeof(V) / sizeof(T);
    expect(0 <= at && after <= size, "an index out of bounds");
    // What is allocated begins at a multiple of all of these.
    expect(at * sizeof(T) % alignof(V) == 0, "a vector that begins askew");
    return after;
  }

  T* data;
  long size;
  bool is_shared;
  std::shared_ptr<std::vector<Touched>> touched;
};

// Several elements at once, of shared memory or of a thread's own.
template <class V, class T>
Element<V, T> wide(const Place<T>& place) {
  return {place.memory, place.at};
}
template <class V, class T>
V& wide(T* begin) {
  expect(reinterpret_cast<uint64_t>(begin) % alignof(V) == 0, "a vector that begins askew");
  return *reinterpret_cast<V*>(begin);
}

// Memory of one thread alone, which no thread before has left numbers in.
template <class T, long SIZE>
struct Own {
  alignas(64) T data[SIZE];
  Own() { memset(static_cast<void*>(data), UNWRITTEN, sizeof(data)); }
  T& operator[](long at) {
    expect(0 <= at && at < SIZE, "an index out of bounds");
    return data[at];
  }
  T* operator+(long at) { return &(*this)[at]; }
};

// Shared memory of a kernel.
template <class T>
Memory<T> shared_memory(long size) {
  void* begin = aligned_alloc(64, (size * sizeof(T) + 63) / 64 * 64);
  shared(begin, size * sizeof(T));
  return Memory<T>(static_cast<T*>(begin), size, true);
}

// What one kernel leaves for the next.
inline void* between(size_t bytes) {
  static std::vector<std::unique_ptr<char[]>> kept;
  kept.emplace_back(new char[bytes]);
  memset(kept.back().get(), UNWRITTEN, bytes);
  return kept.back().get();
}

template <class T, class Kept>
T plain(const Element<T, Kept>& element) {
  return element;
}
template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> || std::is_same_v<T, half>>>
T plain(T number) {
  return number;
}

}  // namespace emulated

// Of half floats too, which become floats on their way.
template <class A, class B, class C>
float fmaf(const A& a, const B& b, const C& c) {
  return ::fmaf(float(emulated::plain(a)), float(emulated::plain(b)), float(emulated::plain(c)));
}
template <class A, class B>
auto min(const A& a, const B& b) -> std::common_type_t<decltype(emulated::plain(a)), decltype(emulated::plain(b))> {
  auto x = emulated::plain(a);
  auto y = emulated::plain(b);
  return y < x ? y : x;
}
template <class A, class B>
auto max(const A& a, const B& b) -> std::common_type_t<decltype(emulated::plain(a)), decltype(emulated::plain(b))> {
  auto x = emulated::plain(a);
  auto y = emulated::plain(b);
  return x < y ? y : x;
}
