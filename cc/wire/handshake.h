// The messages with which every connection begins (protocol rule 1):
//
//     the side that connects          the side that listens
//     Hello                    ->
//                              <-     Challenge
//     Response                 ->
//                              <-     Welcome
//
// Nothing else is read before, and each has a fixed size, so that a stranger costs little.
// Challenge and Welcome may be a refusal with its reason. Where the job has a secret, Response and
// Welcome prove that their sender knows it (wire/authentication.h); then a stranger learns nothing
// of the job, and neither side tells where its memory is before that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cc/base/sha256.h"
#include "cc/base/status.h"

namespace byteps {

inline constexpr uint16_t kProtocolVersion = 9;

// Features that this build offers and demands; an unknown demanded bit is refused. Compression and
// resuming will take bits.
inline constexpr uint64_t kSecretFeature = 1;  // the sender has a secret to prove
inline constexpr uint64_t kRdmaFeature = 2;    // frames may go by RDMA (van/rdma)
inline constexpr uint64_t kSupportedFeatures = kSecretFeature | kRdmaFeature;

enum class Role : uint8_t { kWorker = 0, kServer = 1, kCoordinator = 2 };

// "worker", "server", "coordinator".
const char* RoleName(Role role);

using Nonce = std::array<uint8_t, 16>;
Nonce RandomNonce();

// Where the peer may look for the nonce that it has sent, to find out whether it can read the
// sender's memory (van/tcp/peer_memory.h).
struct MemoryOffer {
  int64_t pid = 0;  // 0: no offer
  uint64_t address = 0;
};

struct Hello {
  uint16_t protocol_version = kProtocolVersion;
  uint64_t features = 0;           // what the sender can do
  uint64_t required_features = 0;  // what it insists on
  std::string job_id;              // at most kMaxJobIdBytes
  uint32_t epoch = 0;
  Role role = Role::kWorker;
  int32_t rank = -1;
  // Of the connections between the two, from 0 on. One that comes again takes the place of the one
  // that broke.
  uint32_t path = 0;
  bool again = false;
  // Whom the sender means to talk to: another process may listen where that one did, or somebody in
  // between may have led it elsewhere. Set by the Van.
  Role to_role = Role::kCoordinator;
  int32_t to_rank = -1;
  Nonce nonce{};
  // Not part of the message: both ends are known to be on one host (protocol rule 17). On the side
  // that listens: the peer's Response says so.
  bool same_host = false;

  // "worker 3".
  std::string PeerName() const { return std::string(RoleName(role)) + " " + std::to_string(rank); }
};

struct Challenge {
  Status status;          // not OK: refused; the message says why
  uint64_t features = 0;  // as Hello's
  Nonce nonce{};
};

struct Response {
  bool same_host = false;  // the sender takes both to be on one host
  MemoryOffer memory;
  Digest proof{};
};

struct Welcome {
  Status status;              // not OK: refused; the message says why
  bool reads_memory = false;  // the sender of this can read the memory that the Response offered
  MemoryOffer memory;
  Digest proof{};
};

// A connection that breaks while both processes live may come again for so long (protocol rule 20).
inline constexpr double kReconnectSeconds = 2;
inline constexpr uint32_t kMaxPaths = 256;

inline constexpr size_t kMaxJobIdBytes = 64;
inline constexpr size_t kHelloBytes = 160;
inline constexpr size_t kChallengeBytes = 512;
inline constexpr size_t kResponseBytes = 64;
inline constexpr size_t kWelcomeBytes = 512;

void EncodeHello(const Hello& hello, uint8_t out[kHelloBytes]);
// Refuses a wrong magic, another protocol version, an unknown role and an unknown required feature.
Status DecodeHello(const uint8_t in[kHelloBytes], Hello* hello);

// Whether what has arrived so far, of anybody, is how a Hello begins.
bool BeginsHello(const void* data, size_t bytes);

void EncodeChallenge(const Challenge& challenge, uint8_t out[kChallengeBytes]);
Status DecodeChallenge(const uint8_t in[kChallengeBytes], Challenge* challenge);

// A proof is the last thing in its message: it is about all before it.
void EncodeResponse(const Response& response, uint8_t out[kResponseBytes]);
Status DecodeResponse(const uint8_t in[kResponseBytes], Response* response);

void EncodeWelcome(const Welcome& welcome, uint8_t out[kWelcomeBytes]);
Status DecodeWelcome(const uint8_t in[kWelcomeBytes], Welcome* welcome);

// What the listener `role` `rank` checks about a Hello besides its form: same job, same epoch, and
// that it is the one who is meant.
Status CheckHello(const Hello& hello, const std::string& job_id, uint32_t epoch, Role role,
                  int32_t rank);

}  // namespace byteps
