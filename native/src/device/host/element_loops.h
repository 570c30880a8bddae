// The loops behind copy_elements and reduce_elements, written to be vectorised by the compiler for whatever
// processor the including unit is compiled for. They give the same bits on all: no sum is reordered, no
// product and sum are fused (-ffp-contract=off), every NaN result is the same NaN.
#pragma once

#include <cstring>

#include "device/host/element_types.h"
#include "device/host/half_instructions.h"
#include "device/host/kernels.h"

// The loops read and write the same index only; dst may equal a or b, which is no dependence between rounds.
#if defined(__clang__)
#define DICOMM_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed"  // 64-bit and complex products may stay scalar
#else
#define DICOMM_VECTORISE _Pragma("GCC ivdep")
#endif

namespace dicomm {
namespace {

inline uint64_t smaller(uint64_t x, uint64_t y) { return x < y ? x : y; }

// An element in memory of any alignment and declared type.
template <class T>
struct [[gnu::packed, gnu::may_alias]] Loose {
  T value;
};
template <class T>
Loose<T> *loose(void *data) {
  return static_cast<Loose<T> *>(data);
}
template <class T>
const Loose<T> *loose(const void *data) {
  return static_cast<const Loose<T> *>(data);
}

// The loops over two operands run over whole chunks, so that their inner part has a fixed length and needs no
// scalar loops after it. (Much shorter ones compilers unroll before they could vectorise them.)
constexpr uint64_t kChunk = 256;  // bytes
using Loop = void (*)(unsigned char *out, const unsigned char *x, const unsigned char *y, uint64_t chunks);

// out[i] = F(x[i], y[i])
template <class T, class F>
void each(unsigned char *out, const unsigned char *x, const unsigned char *y, uint64_t chunks) {
  for (; chunks > 0; --chunks, out += kChunk, x += kChunk, y += kChunk) {
    auto *to = loose<T>(out);
    const auto *a = loose<T>(x);
    const auto *b = loose<T>(y);
    DICOMM_VECTORISE
    for (uint64_t i = 0; i < kChunk / sizeof(T); ++i) to[i].value = combine<T, F>(a[i].value, b[i].value);
  }
}

// Where more is done to each byte than an add, the processor does not look far enough ahead by itself.
inline void fetch_ahead(const unsigned char *data) {
  constexpr uint64_t kAhead = 768, kLine = 64;
  for (uint64_t i = 0; i < kChunk; i += kLine) __builtin_prefetch(data + kAhead + i);
}

// F of the small floats in a and b.
template <class T, class F>
uint32_t combine_word(uint32_t a, uint32_t b) {
  uint32_t word = 0;
#pragma GCC unroll 4
  for (int shift = 0; shift < 32; shift += T::kBits) {
    word |= T::encode(F{}(T::decode(a, shift), T::decode(b, shift)), shift);
  }
  return word;
}

// The same on small floats. They are taken in words of 32 bits and stay in place there, which is cheaper than
// moving 16- and 8-bit lanes into 32-bit ones and back.
template <class T, class F>
void each_small(unsigned char *out, const unsigned char *x, const unsigned char *y, uint64_t chunks) {
  for (; chunks > 0; --chunks, out += kChunk, x += kChunk, y += kChunk) {
    fetch_ahead(x);
    fetch_ahead(y);
    auto *to = loose<uint32_t>(out);
    const auto *a = loose<uint32_t>(x);
    const auto *b = loose<uint32_t>(y);
    DICOMM_VECTORISE
    for (uint64_t i = 0; i < kChunk / 4; ++i) to[i].value = combine_word<T, F>(a[i].value, b[i].value);
  }
}

#if DICOMM_HALF_INSTRUCTIONS
template <class F>
void each_half(unsigned char *out, const unsigned char *x, const unsigned char *y, uint64_t chunks) {
  for (; chunks > 0; --chunks, out += kChunk, x += kChunk, y += kChunk) {
    fetch_ahead(x);
    fetch_ahead(y);
    for (uint64_t i = 0; i < kChunk; i += kLanes * sizeof(Half)) {
      narrow_lanes(out + i, F{}(widen_lanes(x + i), widen_lanes(y + i)));
    }
  }
}
#endif

// All of `bytes`, an incomplete last chunk in memory of its own.
inline void run(Loop loop, void *out, const void *x, const void *y, uint64_t bytes) {
  auto *to = static_cast<unsigned char *>(out);
  const auto *a = static_cast<const unsigned char *>(x);
  const auto *b = static_cast<const unsigned char *>(y);
  const uint64_t rest = bytes % kChunk, whole = bytes - rest;
  loop(to, a, b, whole / kChunk);
  if (rest == 0) return;
  alignas(64) unsigned char last_a[kChunk] = {}, last_b[kChunk] = {}, last[kChunk];
  std::memcpy(last_a, a + whole, rest);
  std::memcpy(last_b, b + whole, rest);
  loop(last, last_a, last_b, 1);
  std::memcpy(to + whole, last, rest);
}

// The loop for F on T; nullptr where T has no such op, which reduction_supported has said.
template <class T, class F>
constexpr Loop loop_of() {
  constexpr bool ordered = std::is_same_v<F, Min> || std::is_same_v<F, Max>;
  constexpr bool bitwise = std::is_same_v<F, And> || std::is_same_v<F, Or> || std::is_same_v<F, Xor>;
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;  // sums and products wrap and do not depend on the sign
    return each<std::conditional_t<ordered, T, Unsigned>, F>;
  } else if constexpr (bitwise || (ordered && is_complex<T>)) {
    return nullptr;
#if DICOMM_HALF_INSTRUCTIONS
  } else if constexpr (std::is_same_v<T, Half>) {
    return each_half<F>;
#endif
  } else if constexpr (is_small_float<T>) {
    return each_small<T, F>;
  } else if constexpr (is_complex<T> && std::is_same_v<F, Add>) {
    return each<typename T::Part, F>;
  } else {
    return each<T, F>;
  }
}

template <class T>
Loop loop_for(dicomm_reduce op) {
  if constexpr (std::is_same_v<T, Bool>) {
    if (op == DICOMM_BXOR) return each<Bool, Xor>;
    return op == DICOMM_PROD || op == DICOMM_MIN || op == DICOMM_BAND ? each<Bool, And> : each<Bool, Or>;
  } else {
    switch (op) {
      case DICOMM_PROD:
        return loop_of<T, Multiply>();
      case DICOMM_MIN:
        return loop_of<T, Min>();
      case DICOMM_MAX:
        return loop_of<T, Max>();
      case DICOMM_BAND:
        return loop_of<T, And>();
      case DICOMM_BOR:
        return loop_of<T, Or>();
      case DICOMM_BXOR:
        return loop_of<T, Xor>();
      default:
        return loop_of<T, Add>();  // sum, avg, premul_sum
    }
  }
}

// out[i] = x[i] as an accumulator, x made of T, and back.
template <class T>
void widen_block(Accumulator<T> *out, const void *x, uint64_t n) {
  const auto *from = loose<T>(x);
  uint64_t done = 0;
#if DICOMM_HALF_INSTRUCTIONS
  if constexpr (std::is_same_v<T, Half>) {
    for (; done + kLanes <= n; done += kLanes) store_lanes(out + done, widen_lanes(from + done));
  }
#endif
  for (uint64_t i = done; i < n; ++i) out[i] = widen(from[i].value);
}
template <class T>
void narrow_block(void *out, const void *x, uint64_t n) {
  auto *to = loose<T>(out);
  const auto *from = loose<Accumulator<T>>(x);
  uint64_t done = 0;
#if DICOMM_HALF_INSTRUCTIONS
  if constexpr (std::is_same_v<T, Half>) {
    for (; done + kLanes <= n; done += kLanes) narrow_lanes(to + done, load_lanes(from + done));
  }
#endif
  for (uint64_t i = done; i < n; ++i) to[i].value = narrow<T>(from[i].value);
}

template <class A>
constexpr uint64_t kBlock = 4096 / sizeof(A);  // elements converted at a time, on the stack

// Elements of an operand as accumulators.
template <class T>
class Operand {
 public:
  using A = Accumulator<T>;

  Operand(const Arithmetic &arithmetic, const void *data, Form form)
      : data_(static_cast<const unsigned char *>(data)),
        wide_(form == Form::wide),
        logical_(std::is_same_v<T, Bool> && form == Form::raw),
        multiply_(arithmetic.op == DICOMM_PREMUL_SUM && form == Form::raw) {
    std::memcpy(&factor_, arithmetic.factor, sizeof factor_);
  }
  bool wide() const { return wide_; }
  bool multiplies() const { return multiply_; }
  bool unchanged() const { return !logical_ && !multiply_; }
  const unsigned char *bytes() const { return data_; }
  // The accumulators of elements [at, at + n); in `block` unless they can be used in place.
  const void *load(uint64_t at, uint64_t n, A *block) const {
    const void *x = data_ + at * (wide_ ? sizeof(A) : sizeof(T));
    if (logical_ || !(wide_ || narrow_is_wide<T>)) {
      widen_block<T>(block, x, n);
      x = block;
    }
    if constexpr (!std::is_same_v<T, Bool>) {
      if (multiply_) {
        DICOMM_VECTORISE
        for (uint64_t i = 0; i < n; ++i) block[i] = settle(multiply(loose<A>(x)[i].value, factor_));
        x = block;
      }
    }
    return x;
  }

 private:
  const unsigned char *data_;
  bool wide_, logical_, multiply_;
  A factor_;
};

// Where accumulators go.
template <class T>
class Result {
 public:
  using A = Accumulator<T>;

  Result(const Arithmetic &arithmetic, void *data, Form form, bool finish)
      : data_(static_cast<unsigned char *>(data)),
        size_(arithmetic.size),
        wide_(form == Form::wide),
        divide_(finish && arithmetic.op == DICOMM_AVG) {}
  bool wide() const { return wide_; }
  bool divides() const { return divide_; }
  unsigned char *bytes() const { return data_; }
  // Where to put the accumulators of elements from `at` on: in `block`, unless memory takes them as they are.
  void *place(uint64_t at, A *block) const {
    return (wide_ || narrow_is_wide<T>) && !divide_ ? data_ + at * sizeof(A) : static_cast<void *>(block);
  }
  // x: accumulators, anywhere
  void store(uint64_t at, uint64_t n, const void *x) const {
    alignas(64) A divided[kBlock<A>];
    const bool as_is = wide_ || narrow_is_wide<T>;
    unsigned char *to = data_ + at * (as_is ? sizeof(A) : sizeof(T));
    if constexpr (!std::is_same_v<T, Bool>) {
      if (divide_) {
        void *quotients = as_is ? to : static_cast<void *>(divided);
        DICOMM_VECTORISE
        for (uint64_t i = 0; i < n; ++i) loose<A>(quotients)[i].value = divide(loose<A>(x)[i].value, size_);
        x = quotients;
      }
    }
    if (!as_is) {
      narrow_block<T>(to, x, n);
    } else if (x != to) {
      std::memmove(to, x, n * sizeof(A));
    }
  }

 private:
  unsigned char *data_;
  int size_;
  bool wide_, divide_;
};

template <class T>
void copy_typed(const Result<T> &dst, const Operand<T> &a, uint64_t count) {
  using A = Accumulator<T>;
  const bool same_type = narrow_is_wide<T> || dst.wide() == a.wide();
  if (same_type && a.unchanged() && !dst.divides()) {
    if (dst.bytes() == a.bytes() || count == 0) return;
    std::memmove(dst.bytes(), a.bytes(), count * (a.wide() ? sizeof(A) : sizeof(T)));
    return;
  }
  alignas(64) A block[kBlock<A>];
  for (uint64_t at = 0; at < count; at += kBlock<A>) {
    const uint64_t n = smaller(kBlock<A>, count - at);
    dst.store(at, n, a.load(at, n, block));
  }
}

template <class T>
void reduce_typed(dicomm_reduce op, const Result<T> &dst, const Operand<T> &a, const Operand<T> &b,
                  uint64_t count) {
  using A = Accumulator<T>;
  // Nothing but the op is to be done, and the types agree: one loop does it all. (It makes bools logical.)
  const bool plain = !a.multiplies() && !b.multiplies() && !dst.divides();
  if (plain && (narrow_is_wide<T> || (!a.wide() && !b.wide() && !dst.wide()))) {
    return run(loop_for<T>(op), dst.bytes(), a.bytes(), b.bytes(), count * sizeof(T));
  }
  const Loop loop = loop_for<std::conditional_t<is_small_float<T>, A, T>>(op);
  if (plain && a.wide() && b.wide() && dst.wide()) {
    return run(loop, dst.bytes(), a.bytes(), b.bytes(), count * sizeof(A));
  }
  alignas(64) A a_block[kBlock<A>];
  alignas(64) A b_block[kBlock<A>];
  for (uint64_t at = 0; at < count; at += kBlock<A>) {
    const uint64_t n = smaller(kBlock<A>, count - at);
    void *out = dst.place(at, a_block);
    run(loop, out, a.load(at, n, a_block), b.load(at, n, b_block), n * sizeof(A));
    dst.store(at, n, out);
  }
}

void copy_by_type(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                  uint64_t count, bool finish) {
  with_type(arithmetic.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    copy_typed<T>({arithmetic, dst, dst_form, finish}, {arithmetic, a, a_form}, count);
  });
}

void reduce_by_type(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                    const void *b, Form b_form, uint64_t count, bool finish) {
  with_type(arithmetic.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    reduce_typed<T>(arithmetic.op, {arithmetic, dst, dst_form, finish}, {arithmetic, a, a_form},
                    {arithmetic, b, b_form}, count);
  });
}

}  // namespace
}  // namespace dicomm
