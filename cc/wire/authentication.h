// The two sides of the handshake, as far as they are bytes: who may go on, and what is answered.
//
// With a secret both sides prove that they know it, each with an HMAC of all that has been said
// before: both nonces, so that no proof can be used again, and job, role, rank, features and memory
// offers, so that nobody in between can change them. The side that listens proves only to those who
// have proved. What follows the handshake is neither signed nor encrypted, unless both are in TLS
// (van/tls, docs/security.md).
#pragma once

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/wire/handshake.h"

namespace byteps {

// The end of a sentence about a secret that is missing or wrong.
extern const char kHowToGiveASecret[];

// The side that connects. Every call once, in this order; after an error no further one.
class ConnectingHandshake {
 public:
  // `secret`: empty if the job has none. `hello`: its features are what is offered besides a
  // secret.
  ConnectingHandshake(std::string secret, const Hello& hello);

  void WriteHello(uint8_t out[kHelloBytes]);
  // An error is the other side's refusal, or it has another idea of secrets than this one.
  Status ReadChallenge(const uint8_t in[kChallengeBytes], Challenge* challenge);
  // `response`: its proof is made here.
  void WriteResponse(Response response, uint8_t out[kResponseBytes]);
  // An error is the other side's refusal, or it does not know the secret.
  Status ReadWelcome(const uint8_t in[kWelcomeBytes], Welcome* welcome);

 private:
  const std::string secret_;
  const Hello hello_;
  std::string said_;  // all messages so far
};

// The side that listens. Every call once, in this order. What ReadHello and ReadResponse return is
// sent: an error as the refusal, which is the last message.
class ListeningHandshake {
 public:
  // `features`: what is offered besides a secret.
  ListeningHandshake(std::string secret, uint64_t features, const Nonce& nonce);

  Status ReadHello(const uint8_t in[kHelloBytes], Hello* hello);
  void WriteChallenge(const Status& status, uint8_t out[kChallengeBytes]);
  Status ReadResponse(const uint8_t in[kResponseBytes], Response* response);
  void WriteWelcome(Welcome welcome, uint8_t out[kWelcomeBytes]);

 private:
  const std::string secret_;
  const uint64_t features_;
  const Nonce nonce_;
  std::string said_;
};

}  // namespace byteps
