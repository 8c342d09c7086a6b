// SHA-256 (FIPS 180-4), for the digests of plans and bundles.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "failure.hpp"

namespace socsched {

constexpr uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

inline uint32_t turned(uint32_t word, int by) { return word >> by | word << (32 - by); }

inline void digest_block(std::array<uint32_t, 8>& state, const unsigned char* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; i++)
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 | block[4 * i + 3];
  for (int i = 16; i < 64; i++)
    w[i] = w[i - 16] + w[i - 7] + (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) +
           (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; i++) {
    const uint32_t one = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i];
    const uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const uint32_t sums[] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; i++) state[i] += sums[i];
}

// The sha256 of a file in hexadecimal; Failure if it cannot be read.
inline std::string file_digest(const std::string& path) {
  std::array<uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (!file) throw Failure(USAGE, path + ": cannot be read: " + std::strerror(errno));
  unsigned char block[64];
  uint64_t total = 0;
  size_t count;
  while ((count = std::fread(block, 1, 64, file)) == 64) {
    digest_block(state, block);
    total += 64;
  }
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) throw Failure(USAGE, path + ": cannot be read to its end");
  total += count;
  block[count++] = 0x80;
  if (count > 56) {
    std::memset(block + count, 0, 64 - count);
    digest_block(state, block);
    count = 0;
  }
  std::memset(block + count, 0, 56 - count);
  for (int i = 0; i < 8; i++) block[56 + i] = static_cast<unsigned char>(total * 8 >> (56 - 8 * i));
  digest_block(state, block);
  char text[65];
  for (size_t i = 0; i < 8; i++) std::snprintf(text + 8 * i, 9, "%08x", state[i]);
  return text;
}

}  // namespace socsched
