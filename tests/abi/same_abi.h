// Do two declarations of a function mean the same call?
#pragma once

#include <type_traits>

namespace same_abi {

// Is an argument of type Ours handed over as one of type Theirs? Enumerations go as int; handles of streams
// and communicators are pointers to what nobody sees.
template <class Ours, class Theirs>
constexpr bool passes() {
  if constexpr (std::is_pointer_v<Theirs>) {
    using Pointed = std::remove_pointer_t<Theirs>;
    constexpr bool same_constness = std::is_const_v<Pointed> == std::is_const_v<std::remove_pointer_t<Ours>>;
    if constexpr (!std::is_pointer_v<Ours>)
      return false;
    else if constexpr (std::is_pointer_v<Pointed> || std::is_enum_v<Pointed>)
      return same_constness && passes<std::remove_pointer_t<Ours>, Pointed>();
    else
      return same_constness;
  } else if constexpr (std::is_enum_v<Theirs>) {
    return std::is_same_v<Ours, int> && sizeof(Theirs) == sizeof(int);
  } else if constexpr (std::is_class_v<Theirs>) {
    return std::is_class_v<Ours> && sizeof(Ours) == sizeof(Theirs) && std::is_trivially_copyable_v<Ours>;
  } else {
    return std::is_same_v<Ours, Theirs>;
  }
}

template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
  requires(sizeof...(Ours) == sizeof...(Theirs))
struct Same<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<passes<OurResult, TheirResult>() && (passes<Ours, Theirs>() && ...)> {};

}  // namespace same_abi
