// What the checks of the executor's own declarations against vendors' headers share: each is compiled, and never run.
#pragma once

#include <cstddef>
#include <type_traits>

// Handles and enumerations count as what they are in the binary interface: addresses and 32-bit numbers.
template <class T>
struct Passed {
  using type = std::conditional_t<std::is_pointer_v<T>, void*, std::conditional_t<std::is_enum_v<T>, int, T>>;
};

template <class F>
struct Shape;
template <class R, class... A>
struct Shape<R (*)(A...)> {
  using type = typename Passed<R>::type (*)(typename Passed<A>::type...);
};
template <class R, class... A>
struct Shape<R (*)(A...) noexcept> : Shape<R (*)(A...)> {};

template <class Mine, class Theirs>
constexpr bool equal = std::is_same_v<typename Shape<std::remove_cv_t<Mine>>::type, typename Shape<std::remove_cv_t<Theirs>>::type>;

#define EQUAL(mine, theirs) static_assert(equal<decltype(mine), decltype(theirs)>, #mine)
#define SAME(ours, own, theirs, their) \
  static_assert(offsetof(ours, own) == offsetof(theirs, their) && sizeof(ours::own) == sizeof(theirs::their), #theirs "::" #their)
