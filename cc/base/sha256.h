// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), so that connections can be authenticated
// without a library that a machine may lack. Only a few hundred bytes of each connection are
// hashed: plain code is fast enough.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace byteps {

using Digest = std::array<uint8_t, 32>;

Digest Sha256(const std::string& message);
Digest HmacSha256(const std::string& key, const std::string& message);

// Takes the same time wherever they differ.
bool SameDigest(const Digest& a, const Digest& b);

}  // namespace byteps
