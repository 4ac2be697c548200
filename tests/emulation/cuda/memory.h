// Memory of a GPU as kernels see it: indices are held against its bounds, and two threads that touch
// one element, one of them to write, with nothing between them that orders these, are a race.
// Within a block a barrier orders, between blocks only the end of the kernel does.
#pragma once

#include "engine.h"
#include "types.h"

namespace emulated {

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
  Memory() = default;
  Memory(const Region& region) : region(region) {}

  Element<T, T> operator[](long at) const { return {*this, at}; }
  Place<T> operator+(long at) const { return {*this, at}; }
  const T* at(long number) const { return reinterpret_cast<T*>(region.data) + number; }

  template <class V>
  V read(long at) const {
    static_assert(sizeof(V) % sizeof(T) == 0, "parts of elements are not told apart");
    V value;
    memcpy(&value, reading(region, at * long(sizeof(T)), sizeof(V), alignof(V)), sizeof(V));
    return value;
  }
  template <class V>
  void write(long at, V value) const {
    static_assert(sizeof(V) % sizeof(T) == 0, "parts of elements are not told apart");
    memcpy(writing(region, at * long(sizeof(T)), sizeof(V), alignof(V)), &value, sizeof(V));
  }

  Region region;
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
Memory<T> shared_memory(long begin, long size) {
  return shared_region(begin, size * sizeof(T), sizeof(T));
}
template <class T>
Memory<T> dynamic_memory() {
  return dynamic_region(sizeof(T));
}
template <class... Sizes>
constexpr long shared_bytes(Sizes... sizes) {
  long end = 0;
  ((end = (end + 63) / 64 * 64 + long(sizes)), ...);
  return end;
}

template <class T, class Kept>
T plain(const Element<T, Kept>& element) {
  return element;
}
template <class T>
constexpr bool IS_NUMBER = std::is_arithmetic_v<T> || std::is_same_v<T, half> || std::is_same_v<T, nv_bfloat16>;
template <class T, class = std::enable_if_t<IS_NUMBER<T>>>
T plain(T number) {
  return number;
}

template <class T>
T shuffled(int line, unsigned mask, T value, int to, int width) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a number of 8 bytes at most");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = exchanged(line, mask, bits, to, width);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

// An argument of a launch, as a kernel takes it.
template <class P>
struct Argument {
  static constexpr int bytes = sizeof(P);
  P value;
  explicit Argument(void* given) { memcpy(&value, given, sizeof(P)); }
  void point(Pointer*&) {}
};
template <class T>
struct Argument<const Memory<T>&> {
  static constexpr int bytes = sizeof(void*);
  Memory<T> value;
  void* address;
  explicit Argument(void* given) { memcpy(&address, given, sizeof(void*)); }
  void point(Pointer*& next) { *next++ = {address, sizeof(T), &value.region}; }
};

template <auto FUNCTION>
struct Entry;
template <class... P, void (*FUNCTION)(P...)>
struct Entry<FUNCTION> {
  using All = std::tuple<Argument<P>...>;
  static constexpr int sizes[] = {Argument<P>::bytes..., 0};

  static void thread(void* given) {
    std::apply([](auto&... each) { FUNCTION(each.value...); }, *static_cast<All*>(given));
  }
  template <size_t... I>
  static void run_with(const Kernel& kernel, const Launch& launch, std::index_sequence<I...>) {
    All all{Argument<P>(launch.arguments[I])...};
    Pointer pointers[sizeof...(P) + 1], *end = pointers;
    (std::get<I>(all).point(end), ...);
    find_regions(pointers, int(end - pointers), launch.device);
    run_blocks(kernel, launch, thread, &all);
  }
  static void run(const Kernel& kernel, const Launch& launch) {
    run_with(kernel, launch, std::index_sequence_for<P...>());
  }
};

template <auto FUNCTION>
constexpr Kernel described(const char* name, long static_shared, int most_threads, bool pauses) {
  using Of = Entry<FUNCTION>;
  constexpr int count = sizeof(Of::sizes) / sizeof(int) - 1;
  return {Of::run, name, count, Of::sizes, static_shared, most_threads, pauses};
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
