// Copies to shared memory that run by themselves (`cp.async`): what is copied is there when the
// thread that began the copy has waited for its group, and for others after a barrier besides. Until
// then nobody may touch where it goes.
#pragma once

#include "memory.h"

namespace emulated {

template <int BYTES>
struct alignas(BYTES) Bytes {
  char data[BYTES];
};

template <int BYTES, class D, class S>
void copy(const Memory<D>& to, long at, const Memory<S>& from, long first) {
  begin_copy(to.region, at * long(sizeof(D)), from.region, first * long(sizeof(S)), BYTES);
}

// Zeros where the condition does not hold: these the thread writes at once.
template <int BYTES, class D, class S>
void copy(const Memory<D>& to, long at, const Memory<S>& from, long first, bool condition) {
  if (condition)
    copy<BYTES>(to, at, from, first);
  else
    to.template write<Bytes<BYTES>>(at, {});
}

}  // namespace emulated
