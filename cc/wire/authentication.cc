#include "cc/wire/authentication.h"

#include <utility>

namespace byteps {
namespace {

// Different for both directions, so that a proof cannot be sent back to where it came from.
constexpr char kResponseLabel[] = "tf_byteps response";
constexpr char kWelcomeLabel[] = "tf_byteps welcome";

std::string Text(const uint8_t* bytes, size_t size) {
  return std::string(reinterpret_cast<const char*>(bytes), size);
}

// The proof for a message, which is about what was said before and the message but for the proof.
// Zeros without a secret.
Digest Proof(const std::string& secret, const char* label, const std::string& said,
             const uint8_t* message, size_t bytes) {
  if (secret.empty()) return Digest{};
  return HmacSha256(secret, label + said + Text(message, bytes - sizeof(Digest)));
}

uint64_t Features(const std::string& secret) { return secret.empty() ? 0 : kSecretFeature; }

}  // namespace

const char kHowToGiveASecret[] =
    "give all processes of a job the same BYTEPS_JOB_SECRET or BYTEPS_JOB_SECRET_FILE, or start it "
    "with bpslaunch";

ConnectingHandshake::ConnectingHandshake(std::string secret, const Hello& hello)
    : secret_(std::move(secret)), hello_(hello) {}

void ConnectingHandshake::WriteHello(uint8_t out[kHelloBytes]) {
  Hello hello = hello_;
  hello.features |= Features(secret_);
  hello.required_features = Features(secret_);
  EncodeHello(hello, out);
  said_ += Text(out, kHelloBytes);
}

Status ConnectingHandshake::ReadChallenge(const uint8_t in[kChallengeBytes], Challenge* challenge) {
  BYTEPS_RETURN_IF_ERROR(DecodeChallenge(in, challenge));
  BYTEPS_RETURN_IF_ERROR(challenge->status);
  if (Features(secret_) != (challenge->features & kSecretFeature)) {
    return FailedPrecondition(std::string("the peer has ") + (secret_.empty() ? "a" : "no") +
                              " secret, unlike this side; " + kHowToGiveASecret);
  }
  said_ += Text(in, kChallengeBytes);
  return OkStatus();
}

void ConnectingHandshake::WriteResponse(Response response, uint8_t out[kResponseBytes]) {
  EncodeResponse(response, out);
  response.proof = Proof(secret_, kResponseLabel, said_, out, kResponseBytes);
  EncodeResponse(response, out);
  said_ += Text(out, kResponseBytes);
}

Status ConnectingHandshake::ReadWelcome(const uint8_t in[kWelcomeBytes], Welcome* welcome) {
  BYTEPS_RETURN_IF_ERROR(DecodeWelcome(in, welcome));
  BYTEPS_RETURN_IF_ERROR(welcome->status);
  if (!SameDigest(welcome->proof, Proof(secret_, kWelcomeLabel, said_, in, kWelcomeBytes))) {
    return FailedPrecondition(std::string("the peer does not know the job's secret; ") +
                              kHowToGiveASecret);
  }
  return OkStatus();
}

ListeningHandshake::ListeningHandshake(std::string secret, uint64_t features, const Nonce& nonce)
    : secret_(std::move(secret)), features_(features), nonce_(nonce) {}

Status ListeningHandshake::ReadHello(const uint8_t in[kHelloBytes], Hello* hello) {
  BYTEPS_RETURN_IF_ERROR(DecodeHello(in, hello));
  if (Features(secret_) != (hello->features & kSecretFeature)) {
    return FailedPrecondition(std::string("the peer has ") + (secret_.empty() ? "a" : "no") +
                              " secret, and this job has " + (secret_.empty() ? "none" : "one") +
                              "; " + kHowToGiveASecret);
  }
  said_ += Text(in, kHelloBytes);
  return OkStatus();
}

void ListeningHandshake::WriteChallenge(const Status& status, uint8_t out[kChallengeBytes]) {
  Challenge challenge;
  challenge.status = status;
  challenge.features = features_ | Features(secret_);
  challenge.nonce = nonce_;
  EncodeChallenge(challenge, out);
  said_ += Text(out, kChallengeBytes);
}

Status ListeningHandshake::ReadResponse(const uint8_t in[kResponseBytes], Response* response) {
  BYTEPS_RETURN_IF_ERROR(DecodeResponse(in, response));
  if (!SameDigest(response->proof, Proof(secret_, kResponseLabel, said_, in, kResponseBytes))) {
    return FailedPrecondition(std::string("the peer has another secret than this job; ") +
                              kHowToGiveASecret);
  }
  said_ += Text(in, kResponseBytes);
  return OkStatus();
}

void ListeningHandshake::WriteWelcome(Welcome welcome, uint8_t out[kWelcomeBytes]) {
  EncodeWelcome(welcome, out);
  welcome.proof = Proof(secret_, kWelcomeLabel, said_, out, kWelcomeBytes);
  // To those who have not proved: nothing that they could use.
  if (!welcome.status.ok()) welcome.proof = Digest{};
  EncodeWelcome(welcome, out);
}

}  // namespace byteps
