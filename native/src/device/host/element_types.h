// The C++ types that stand for dtypes, and the arithmetic on single elements.
//
// Translation units compiled for different processors include this header. Everything here is in an anonymous
// namespace and calls no function of the standard library but memcpy: a function that one of those units
// shared with the rest of the library could be the one that the linker keeps, and end a program on a
// processor that lacks its instructions (tests/arch/test_kernel_variants.py).
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/host/small_float.h"
#include "dicomm/dicomm.h"

namespace dicomm {
namespace {

struct Bool {
  uint8_t bits;
};

template <class R>
struct Complex {
  using Part = R;
  R re, im;
};

template <class T>
inline constexpr bool is_small_float = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16> ||
                                       std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;
template <class T>
inline constexpr bool is_complex = false;
template <class R>
inline constexpr bool is_complex<Complex<R>> = true;

template <class T>
using Accumulator =
    std::conditional_t<is_small_float<T>, float, std::conditional_t<std::is_same_v<T, Bool>, uint8_t, T>>;

// Do T and its accumulator have the same representation?
template <class T>
inline constexpr bool narrow_is_wide = std::is_same_v<Accumulator<T>, T> || std::is_same_v<T, Bool>;

template <class T>
Accumulator<T> widen(T x) {
  if constexpr (is_small_float<T>) {
    return T::decode(x.bits, 0);
  } else if constexpr (std::is_same_v<T, Bool>) {
    return x.bits != 0;
  } else {
    return x;
  }
}

template <class T>
T narrow(Accumulator<T> x) {
  if constexpr (is_small_float<T>) {
    return {static_cast<typename T::Storage>(T::encode(x, 0))};
  } else if constexpr (std::is_same_v<T, Bool>) {
    return {x};
  } else {
    return x;
  }
}

// Every NaN that arithmetic yields is the same NaN. Which operand's NaN survives an addition is up to
// compiler and processor, and ranks that compute the same result each for itself must get the same bits.
template <class A>
A settle(A x) {
  if constexpr (std::is_same_v<A, float>) {
    return x == x ? x : __builtin_nanf("");
  } else if constexpr (std::is_same_v<A, double>) {
    return x == x ? x : __builtin_nan("");
  } else if constexpr (is_complex<A>) {
    return {settle(x.re), settle(x.im)};
  } else {
    return x;
  }
}

// -x, where compilers do not see it: of neighbours a - b and c + d, g++ 12 makes one instruction that also
// fuses the products in a and c, whatever -ffp-contract says.
inline float negated(float x) { return float_of(bits_of(x) ^ INT32_MIN); }
inline double negated(double x) {
  return __builtin_bit_cast(double, __builtin_bit_cast(int64_t, x) ^ INT64_MIN);
}

// Unsigned and at least as wide as int: arithmetic on it wraps and is never promoted to signed.
template <class A>
using Wrapping = std::conditional_t<(sizeof(A) < 4), uint32_t, std::make_unsigned_t<A>>;

template <class A>
A multiply(A x, A y) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<Wrapping<A>>(x) * static_cast<Wrapping<A>>(y));
  } else if constexpr (is_complex<A>) {  // the textbook product, as torch has it
    return {x.re * y.re + negated(x.im * y.im), x.re * y.im + x.im * y.re};
  } else {
    return x * y;
  }
}

// Toward zero for integers. Those of up to 32 bits divide in floating point, which processors do in vectors;
// the quotient is exact: where x / size is no integer, it differs from the next one by more than a rounding.
// 64-bit integers have no such type and stay scalar.
template <class A>
A divide(A x, int size) {
  if constexpr (std::is_integral_v<A> && sizeof(A) <= 2) {
    return static_cast<A>(static_cast<int32_t>(static_cast<float>(x) / static_cast<float>(size)));
  } else if constexpr (std::is_same_v<A, int32_t>) {
    return static_cast<int32_t>(static_cast<double>(x) / size);
  } else if constexpr (std::is_same_v<A, uint32_t>) {  // by way of int32, which every processor converts
    const double value = static_cast<double>(static_cast<int32_t>(x ^ 0x80000000u)) + 0x80000000p0;
    return size == 1 ? x : static_cast<uint32_t>(static_cast<int32_t>(value / size));
  } else if constexpr (std::is_integral_v<A> && std::is_signed_v<A>) {
    return x / size;
  } else if constexpr (std::is_integral_v<A>) {
    return x / static_cast<A>(size);
  } else if constexpr (is_complex<A>) {
    return {divide(x.re, size), divide(x.im, size)};
  } else {
    return x / static_cast<A>(size);
  }
}

// What combines two accumulators. Sums, products and bitwise ops are asked for unsigned integers only.
struct Add {
  template <class A>
  A operator()(A x, A y) const {
    return static_cast<A>(x + y);
  }
};
struct Multiply {
  template <class A>
  A operator()(A x, A y) const {
    return multiply(x, y);
  }
};
struct Min {  // a NaN on either side wins
  template <class A>
  A operator()(A x, A y) const {
    return ((x < y) | (x != x)) ? x : y;
  }
};
struct Max {
  template <class A>
  A operator()(A x, A y) const {
    return ((x > y) | (x != x)) ? x : y;
  }
};
struct And {
  template <class A>
  A operator()(A x, A y) const {
    return static_cast<A>(x & y);
  }
};
struct Or {
  template <class A>
  A operator()(A x, A y) const {
    return static_cast<A>(x | y);
  }
};
struct Xor {
  template <class A>
  A operator()(A x, A y) const {
    return static_cast<A>(x ^ y);
  }
};

template <class T, class F>
T combine(T x, T y) {
  return narrow<T>(settle<Accumulator<T>>(F{}(widen(x), widen(y))));
}

template <class T>
struct Type {
  using type = T;
};

// f(Type<T>) for the C++ type of dtype.
template <class F>
void with_type(dicomm_dtype dtype, F f) {
  switch (dtype) {
    case DICOMM_UINT8:
      return f(Type<uint8_t>{});
    case DICOMM_INT8:
      return f(Type<int8_t>{});
    case DICOMM_UINT16:
      return f(Type<uint16_t>{});
    case DICOMM_INT16:
      return f(Type<int16_t>{});
    case DICOMM_UINT32:
      return f(Type<uint32_t>{});
    case DICOMM_INT32:
      return f(Type<int32_t>{});
    case DICOMM_UINT64:
      return f(Type<uint64_t>{});
    case DICOMM_INT64:
      return f(Type<int64_t>{});
    case DICOMM_BOOL:
      return f(Type<Bool>{});
    case DICOMM_FLOAT8_E4M3FN:
      return f(Type<Float8E4M3>{});
    case DICOMM_FLOAT8_E5M2:
      return f(Type<Float8E5M2>{});
    case DICOMM_FLOAT16:
      return f(Type<Half>{});
    case DICOMM_BFLOAT16:
      return f(Type<BFloat16>{});
    case DICOMM_FLOAT32:
      return f(Type<float>{});
    case DICOMM_FLOAT64:
      return f(Type<double>{});
    case DICOMM_COMPLEX64:
      return f(Type<Complex<float>>{});
    case DICOMM_COMPLEX128:
      return f(Type<Complex<double>>{});
  }
}

}  // namespace
}  // namespace dicomm
