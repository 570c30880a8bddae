#include "device/host/kernels.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

#include "device/host/small_float.h"

// The loops below read and write the same index only; dst may equal a or b, which is no dependence between
// rounds.
#if defined(__clang__)
#define DICOMM_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed"  // 64-bit and complex products may stay scalar
#else
#define DICOMM_VECTORISE _Pragma("GCC ivdep")
#endif

namespace dicomm {

namespace {

struct Bool {
  uint8_t bits;
};

template <class T>
inline constexpr bool is_small_float = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16> ||
                                       std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;
template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<std::complex<T>> = true;

template <class T>
using Accumulator =
    std::conditional_t<is_small_float<T>, float, std::conditional_t<std::is_same_v<T, Bool>, uint8_t, T>>;

// Do T and its accumulator have the same representation?
template <class T>
inline constexpr bool narrow_is_wide = std::is_same_v<Accumulator<T>, T> || std::is_same_v<T, Bool>;

template <class T>
Accumulator<T> widen(T x) {
  if constexpr (is_small_float<T>) {
    return x.to_float();
  } else if constexpr (std::is_same_v<T, Bool>) {
    return x.bits != 0;
  } else {
    return x;
  }
}

template <class T>
T narrow(Accumulator<T> x) {
  if constexpr (is_small_float<T>) {
    return T::from_float(x);
  } else if constexpr (std::is_same_v<T, Bool>) {
    return {x};
  } else {
    return x;
  }
}

// Unsigned and at least as wide as int: arithmetic on it wraps and is never promoted to signed.
template <class A>
using Wrapping = std::conditional_t<(sizeof(A) < 4), uint32_t, std::make_unsigned_t<A>>;

template <class A>
A add(A x, A y) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<Wrapping<A>>(x) + static_cast<Wrapping<A>>(y));
  } else {
    return x + y;
  }
}

template <class A>
A multiply(A x, A y) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<Wrapping<A>>(x) * static_cast<Wrapping<A>>(y));
  } else if constexpr (is_complex<A>) {  // the textbook product, as torch has it; operator* repairs
                                         // infinities
    return A(x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real());
  } else {
    return x * y;
  }
}

template <class A>
A divide(A x, int size) {
  if constexpr (std::is_integral_v<A> && std::is_signed_v<A>) {
    return static_cast<A>(static_cast<int64_t>(x) / size);
  } else if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<uint64_t>(x) / static_cast<uint64_t>(size));
  } else if constexpr (is_complex<A>) {
    return x / static_cast<typename A::value_type>(size);
  } else {
    return x / static_cast<A>(size);
  }
}

// Every NaN that arithmetic yields is the same NaN. Which operand's NaN survives an addition is up to
// compiler and processor, and ranks that compute the same result each for itself must get the same bits.
template <class A>
A settle(A x) {
  if constexpr (std::is_floating_point_v<A>) {
    return x == x ? x : std::numeric_limits<A>::quiet_NaN();
  } else if constexpr (is_complex<A>) {
    return A(settle(x.real()), settle(x.imag()));
  } else {
    return x;
  }
}

// out[i] = f(x[i], y[i])
template <class A, class F>
void each(A *out, const A *x, const A *y, uint64_t n, F f) {
  DICOMM_VECTORISE
  for (uint64_t i = 0; i < n; ++i) out[i] = settle<A>(f(x[i], y[i]));
}

template <class T>
void combine(dicomm_reduce op, Accumulator<T> *out, const Accumulator<T> *x, const Accumulator<T> *y,
             uint64_t n) {
  using A = Accumulator<T>;
  if constexpr (std::is_same_v<T, Bool>) {  // 0 or 1
    switch (op) {
      case DICOMM_PROD:
      case DICOMM_MIN:
      case DICOMM_BAND:
        return each(out, x, y, n, [](A a, A b) { return static_cast<A>(a & b); });
      case DICOMM_BXOR:
        return each(out, x, y, n, [](A a, A b) { return static_cast<A>(a ^ b); });
      default:
        return each(out, x, y, n, [](A a, A b) { return static_cast<A>(a | b); });
    }
  } else {
    switch (op) {
      case DICOMM_PROD:
        return each(out, x, y, n, [](A a, A b) { return multiply(a, b); });
      case DICOMM_MIN:
        if constexpr (!is_complex<A>) {  // a NaN on either side wins
          return each(out, x, y, n, [](A a, A b) { return ((a < b) | (a != a)) ? a : b; });
        }
        return;
      case DICOMM_MAX:
        if constexpr (!is_complex<A>) {
          return each(out, x, y, n, [](A a, A b) { return ((a > b) | (a != a)) ? a : b; });
        }
        return;
      case DICOMM_BAND:
        if constexpr (std::is_integral_v<A>) {
          return each(out, x, y, n, [](A a, A b) { return static_cast<A>(a & b); });
        }
        return;
      case DICOMM_BOR:
        if constexpr (std::is_integral_v<A>) {
          return each(out, x, y, n, [](A a, A b) { return static_cast<A>(a | b); });
        }
        return;
      case DICOMM_BXOR:
        if constexpr (std::is_integral_v<A>) {
          return each(out, x, y, n, [](A a, A b) { return static_cast<A>(a ^ b); });
        }
        return;
      default:
        return each(out, x, y, n, [](A a, A b) { return add(a, b); });  // sum, avg, premul_sum
    }
  }
}

template <class A>
A factor_of(const Arithmetic &arithmetic) {
  A factor;
  std::memcpy(&factor, arithmetic.factor, sizeof factor);
  return factor;
}

constexpr uint64_t kBlock = 256;  // elements converted at a time, on the stack

template <class T>
bool aligned(const void *data) {
  return reinterpret_cast<uintptr_t>(data) % alignof(T) == 0;
}

// Elements of an operand as accumulators.
template <class T>
class Operand {
 public:
  using A = Accumulator<T>;

  Operand(const Arithmetic &arithmetic, const void *data, Form form)
      : data_(static_cast<const unsigned char *>(data)),
        wide_(form == Form::wide),
        logical_(std::is_same_v<T, Bool> && form == Form::raw),
        multiply_(arithmetic.op == DICOMM_PREMUL_SUM && form == Form::raw),
        factor_(factor_of<A>(arithmetic)) {}
  // Is nothing to be done to the elements, in memory of the accumulation type?
  bool direct() const { return (wide_ || narrow_is_wide<T>) && unchanged() && aligned<A>(data_); }
  bool unchanged() const { return !logical_ && !multiply_; }
  bool wide() const { return wide_; }
  const unsigned char *bytes() const { return data_; }
  // The accumulators of elements [at, at + n); in `block` unless they can be used in place.
  const A *load(uint64_t at, uint64_t n, A *block) const {
    if (direct()) return reinterpret_cast<const A *>(data_) + at;
    if (wide_) {
      std::memcpy(block, data_ + at * sizeof(A), n * sizeof(A));
      return block;
    }
    T copy[kBlock];
    const T *x = reinterpret_cast<const T *>(data_) + at;
    if (!aligned<T>(data_)) {
      std::memcpy(copy, data_ + at * sizeof(T), n * sizeof(T));
      x = copy;
    }
    for (uint64_t i = 0; i < n; ++i) block[i] = widen(x[i]);
    if (multiply_) {
      for (uint64_t i = 0; i < n; ++i) block[i] = multiply(block[i], factor_);
    }
    return block;
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
  // Can accumulators be written to memory as they are?
  bool direct() const { return (wide_ || narrow_is_wide<T>) && !divide_ && aligned<A>(data_); }
  bool divides() const { return divide_; }
  bool wide() const { return wide_; }
  unsigned char *bytes() const { return data_; }
  A *place(uint64_t at) const { return reinterpret_cast<A *>(data_) + at; }
  // n <= kBlock, unless direct()
  void store(uint64_t at, uint64_t n, const A *x) const {
    A divided[kBlock];
    if (divide_) {
      for (uint64_t i = 0; i < n; ++i) divided[i] = divide(x[i], size_);
      x = divided;
    }
    if (wide_ || narrow_is_wide<T>) {
      std::memmove(data_ + at * sizeof(A), x, n * sizeof(A));
      return;
    }
    T narrowed[kBlock];
    for (uint64_t i = 0; i < n; ++i) narrowed[i] = narrow<T>(x[i]);
    std::memcpy(data_ + at * sizeof(T), narrowed, n * sizeof(T));
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
  alignas(64) A block[kBlock];
  for (uint64_t at = 0; at < count; at += kBlock) {
    const uint64_t n = std::min(kBlock, count - at);
    dst.store(at, n, a.load(at, n, block));
  }
}

template <class T>
void reduce_typed(dicomm_reduce op, const Result<T> &dst, const Operand<T> &a, const Operand<T> &b,
                  uint64_t count) {
  using A = Accumulator<T>;
  alignas(64) A a_block[kBlock];
  alignas(64) A b_block[kBlock];
  const uint64_t step = a.direct() && b.direct() && dst.direct() ? count : kBlock;
  for (uint64_t at = 0; at < count; at += step) {
    const uint64_t n = std::min(step, count - at);
    const A *x = a.load(at, n, a_block);
    const A *y = b.load(at, n, b_block);
    A *out = dst.direct() ? dst.place(at) : a_block;
    combine<T>(op, out, x, y, n);
    if (out == a_block) dst.store(at, n, a_block);
  }
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
      return f(Type<std::complex<float>>{});
    case DICOMM_COMPLEX128:
      return f(Type<std::complex<double>>{});
  }
}

// To an integer type: toward zero, NaN to 0, what is out of range to the nearest limit.
template <class A>
A convert(double value) {
  if constexpr (std::is_integral_v<A>) {
    if (std::isnan(value)) return 0;
    if (value <= static_cast<double>(std::numeric_limits<A>::min())) return std::numeric_limits<A>::min();
    if (value >= static_cast<double>(std::numeric_limits<A>::max())) return std::numeric_limits<A>::max();
  }
  if constexpr (is_complex<A>) {
    return A(static_cast<typename A::value_type>(value), 0);
  } else {
    return static_cast<A>(value);
  }
}

bool is_small(dicomm_dtype dtype) {
  return dtype == DICOMM_FLOAT8_E4M3FN || dtype == DICOMM_FLOAT8_E5M2 || dtype == DICOMM_FLOAT16 ||
         dtype == DICOMM_BFLOAT16;
}

}  // namespace

dicomm_dtype accumulation_type(dicomm_dtype dtype) { return is_small(dtype) ? DICOMM_FLOAT32 : dtype; }

bool reduction_supported(dicomm_dtype dtype, dicomm_reduce op) {
  const bool boolean = dtype == DICOMM_BOOL;
  const bool complex = dtype == DICOMM_COMPLEX64 || dtype == DICOMM_COMPLEX128;
  const bool integer = dtype <= DICOMM_INT64;
  switch (op) {
    case DICOMM_SUM:
    case DICOMM_PROD:
      return true;
    case DICOMM_MIN:
    case DICOMM_MAX:
      return !complex;
    case DICOMM_AVG:
    case DICOMM_PREMUL_SUM:
      return !boolean;
    case DICOMM_BAND:
    case DICOMM_BOR:
    case DICOMM_BXOR:
      return integer || boolean;
  }
  return false;
}

void copy_elements(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                   uint64_t count, bool finish) {
  with_type(arithmetic.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    copy_typed<T>({arithmetic, dst, dst_form, finish}, {arithmetic, a, a_form}, count);
  });
}

void reduce_elements(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                     const void *b, Form b_form, uint64_t count, bool finish) {
  with_type(arithmetic.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    reduce_typed<T>(arithmetic.op, {arithmetic, dst, dst_form, finish}, {arithmetic, a, a_form},
                    {arithmetic, b, b_form}, count);
  });
}

void set_factor(Arithmetic &arithmetic, double value) {
  with_type(accumulation_type(arithmetic.dtype), [&](auto type) {
    using A = Accumulator<typename decltype(type)::type>;
    const A factor = convert<A>(value);
    std::memcpy(arithmetic.factor, &factor, sizeof factor);
  });
}

void set_factor(Arithmetic &arithmetic, const void *element) {
  with_type(arithmetic.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T value;
    std::memcpy(&value, element, sizeof value);
    const Accumulator<T> factor = widen(value);
    std::memcpy(arithmetic.factor, &factor, sizeof factor);
  });
}

}  // namespace dicomm
