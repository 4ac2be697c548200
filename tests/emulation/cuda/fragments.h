// The tiles of matrices that the threads of a warp hold together for their tensor core.
//
// They are whole matrices here, which the first of a warp's threads holds: what the others are given
// must be the same. How a GPU spreads fragments over threads is not looked at.
#pragma once

#include "memory.h"

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
void aligned(emulated::Place<T> place, unsigned rows_apart) {
  emulated::expect(place.at * sizeof(T) % 16 == 0, "a fragment that begins askew");
  emulated::expect(rows_apart * sizeof(T) % 16 == 0, "rows of a fragment that begin askew");
}

template <class U, int M, int N, int K, class T, class L, class V>
void fill_fragment(fragment<U, M, N, K, T, L>& f, V value) {
  for (auto& row : f.x)
    for (auto& each : row) each = T(value);
}

template <class U, int M, int N, int K, class T, class L>
void load_matrix_sync(fragment<U, M, N, K, T, L>& f, emulated::Place<T> from, unsigned apart) {
  aligned(from, apart);
  emulated::collective(from.memory.at(from.at), apart);
  if (!emulated::leads()) return;
  constexpr bool across = std::is_same_v<L, col_major>;
  for (int i = 0; i < f.rows; ++i)
    for (int j = 0; j < f.columns; ++j) f.x[i][j] = from.memory[from.at + (across ? j * apart + i : i * apart + j)];
}

template <int M, int N, int K, class T>
void store_matrix_sync(emulated::Place<T> to, const fragment<accumulator, M, N, K, T>& f, unsigned apart, layout_t) {
  aligned(to, apart);
  emulated::collective(to.memory.at(to.at), apart);
  if (!emulated::leads()) return;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) to.memory[to.at + i * apart + j] = f.x[i][j];
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
