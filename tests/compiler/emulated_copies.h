// Copies to shared memory that run by themselves (`cp.async`): what is copied is there when the
// thread that began the copy has waited for its group, and for others after a barrier besides. Until
// then nobody may touch where it goes.
#pragma once

#include "emulated_memory.h"

namespace emulated {

template <int BYTES>
struct alignas(BYTES) Bytes {
  char data[BYTES];
};

template <int BYTES, class D, class S>
void copy(const Memory<D>& to, long at, const Memory<S>& from, long first) {
  using All = Bytes<BYTES>;
  from.template read<All>(first);
  to.template begin_copy<All>(at);
  current->begun.push_back([=] { to.template end_copy<All>(at, from.template read<All>(first)); });
}

// Zeros where the condition does not hold: these the thread writes at once.
template <int BYTES, class D, class S>
void copy(const Memory<D>& to, long at, const Memory<S>& from, long first, bool condition) {
  if (condition)
    copy<BYTES>(to, at, from, first);
  else
    to.template write<Bytes<BYTES>>(at, {});
}

inline void commit_copies() {
  current->groups.push_back(std::move(current->begun));
  current->begun.clear();
}

// Until no more than the last `left` groups are on their way.
inline void wait_for_copies(size_t left) {
  auto& groups = current->groups;
  while (groups.size() > left) {
    for (auto& end : groups.front()) end();
    groups.pop_front();
  }
}

}  // namespace emulated
