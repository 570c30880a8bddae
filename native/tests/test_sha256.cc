// Expected values: FIPS 180-4 examples, RFC 4231 test cases.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "base/sha256.h"

using namespace dicomm;

namespace {

Bytes bytes(const std::string &text) {
  return {reinterpret_cast<const std::byte *>(text.data()), text.size()};
}

std::string hex(const Digest &digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte b : digest) {
    out += kDigits[std::to_integer<int>(b) >> 4];
    out += kDigits[std::to_integer<int>(b) & 15];
  }
  return out;
}

std::string sha256(const std::string &text) {
  Sha256 hash;
  hash.update(bytes(text));
  return hex(hash.finish());
}

}  // namespace

TEST_CASE("sha256: published vectors") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnop"
               "qrsmno"
               "pqrstnopqrstu") == "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(sha256(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256: how the input is cut does not matter") {
  const std::string text(300, 'q');
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(bytes(text.substr(0, cut)));
    hash.update(bytes(text.substr(cut)));
    REQUIRE(hex(hash.finish()) == sha256(text));
  }
}

TEST_CASE("hmac_sha256: RFC 4231") {
  CHECK(hex(hmac_sha256(bytes(std::string(20, '\x0b')), {bytes("Hi There")})) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256(bytes("Jefe"), {bytes("what do ya want "), bytes("for nothing?")})) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(bytes(std::string(20, '\xaa')), {bytes(std::string(50, '\xdd'))})) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hex(hmac_sha256(bytes(std::string(131, '\xaa')),
                        {bytes("Test Using Larger Than Block-Size Key - Hash Key First")})) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("equal_in_constant_time and random_bytes") {
  CHECK(equal_in_constant_time(bytes("same"), bytes("same")));
  CHECK_FALSE(equal_in_constant_time(bytes("same"), bytes("sane")));
  CHECK_FALSE(equal_in_constant_time(bytes("same"), bytes("sam")));
  std::array<std::byte, 32> a{}, b{};
  random_bytes(a);
  random_bytes(b);
  CHECK(a != b);
}
