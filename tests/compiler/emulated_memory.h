// Memory of a GPU that knows who touches it: indices are held against its bounds, and two threads
// that touch one element, one of them to write, with nothing between them that orders these, are a
// race. Within a block a barrier orders, between blocks only the end of the kernel does.
#pragma once

#include <type_traits>

#include "emulated_cuda.h"

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
};

template <class T>
class Memory;

template <class T>
class Element {
 public:
  Element(const Memory<T>& memory, long at) : memory(memory), at(at) {}
  operator T() const { return memory.read(at); }
  T operator=(T value) const {
    memory.write(at, value);
    return value;
  }
  T operator=(const Element& other) const { return *this = T(other); }

 private:
  const Memory<T>& memory;
  long at;
};

template <class T>
class Memory {
 public:
  Memory(void* begin, long size, bool is_shared = false)
      : data(static_cast<T*>(begin)), size(size), is_shared(is_shared),
        touched(std::make_shared<std::vector<Touched>>(size)) {}

  Element<T> operator[](long at) const {
    expect(0 <= at && at < size, "an index out of bounds");
    return {*this, at};
  }
  T read(long at) const {
    Touched& here = (*touched)[at];
    expect(!here.written.unordered(is_shared), "an element that is read while another thread writes it");
    here.read.note(is_shared);
    return data[at];
  }
  void write(long at, T value) const {
    Touched& here = (*touched)[at];
    expect(!here.written.unordered(is_shared), "an element that two threads write");
    expect(!here.read.unordered(is_shared), "an element that is written while another thread reads it");
    here.written.note(is_shared);
    data[at] = value;
  }

 private:
  T* data;
  long size;
  bool is_shared;
  std::shared_ptr<std::vector<Touched>> touched;
};

// Static shared memory of a kernel; numbers that no block before has left.
template <class T>
Memory<T> shared_memory(long size) {
  T* begin = new T[size];
  shared(begin, size * sizeof(T));
  return Memory<T>(begin, size, true);
}

// What one kernel leaves for the next.
inline void* between(size_t bytes) {
  static std::vector<std::unique_ptr<char[]>> kept;
  kept.emplace_back(new char[bytes]);
  memset(kept.back().get(), 0x7f, bytes);
  return kept.back().get();
}

template <class T>
T plain(const Element<T>& element) {
  return element;
}
template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
T plain(T number) {
  return number;
}

}  // namespace emulated

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
