// Our declarations of vendors' functions compared with their own, as the calling convention sees them.
#pragma once

#include <type_traits>

namespace dicomm::test {

// An enumeration is an int, a pointer to anything but text and numbers a void *.
template <class T>
struct Plain {
  using type = T;
};
template <class T>
  requires std::is_enum_v<T>
struct Plain<T> {
  using type = int;
  static_assert(sizeof(T) == sizeof(int));
};
template <class R, class... A>
struct Plain<R (*)(A...)> {
  using type = typename Plain<R>::type (*)(typename Plain<A>::type...);
};
template <class T>
  requires(!std::is_function_v<T> && (std::is_class_v<std::remove_const_t<T>> || std::is_pointer_v<T>))
struct Plain<T *> {
  using type = std::conditional_t<std::is_const_v<T>, const void *,
                                  std::conditional_t<std::is_pointer_v<T>, void **, void *>>;
};

template <class Ours, class Theirs>
constexpr bool same = std::is_same_v<typename Plain<Ours>::type, typename Plain<Theirs>::type>;

}  // namespace dicomm::test
