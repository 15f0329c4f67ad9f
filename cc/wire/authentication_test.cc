#include "cc/wire/authentication.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace byteps {
namespace {

const char kSecret[] = "the secret of the job, 32 bytes.";

// What the messages of one handshake were, and how each side ended.
struct Outcome {
  std::string hello, challenge, response, welcome;
  Status connecting;
  Status listening;
  Hello seen;  // by the side that listens
  MemoryOffer offered;
};

std::string* Buffer(std::string* text, size_t bytes) {
  text->assign(bytes, '\0');
  return text;
}
uint8_t* Bytes(std::string* text) { return reinterpret_cast<uint8_t*>(text->data()); }

Hello WorkerHello() {
  Hello hello;
  hello.job_id = "job";
  hello.epoch = 2;
  hello.rank = 3;
  hello.nonce = RandomNonce();
  return hello;
}

// Lets `in_between` change the messages in flight: its argument is their number, from 0.
Outcome Shake(const std::string& connecting_secret, const std::string& listening_secret,
              const std::function<void(int, std::string*)>& in_between = {}) {
  Outcome outcome;
  ConnectingHandshake connecting(connecting_secret, WorkerHello());
  ListeningHandshake listening(listening_secret, 0, RandomNonce());
  const auto pass = [&](int number, std::string* message) {
    if (in_between) in_between(number, message);
  };
  connecting.WriteHello(Bytes(Buffer(&outcome.hello, kHelloBytes)));
  pass(0, &outcome.hello);
  outcome.listening = listening.ReadHello(Bytes(&outcome.hello), &outcome.seen);
  listening.WriteChallenge(outcome.listening, Bytes(Buffer(&outcome.challenge, kChallengeBytes)));
  pass(1, &outcome.challenge);
  Challenge challenge;
  outcome.connecting = connecting.ReadChallenge(Bytes(&outcome.challenge), &challenge);
  if (!outcome.listening.ok() || !outcome.connecting.ok()) return outcome;
  connecting.WriteResponse({true, {11, 22}}, Bytes(Buffer(&outcome.response, kResponseBytes)));
  pass(2, &outcome.response);
  Response response;
  outcome.listening = listening.ReadResponse(Bytes(&outcome.response), &response);
  outcome.offered = response.memory;
  Welcome welcome;
  welcome.status = outcome.listening;
  welcome.memory = {33, 44};
  listening.WriteWelcome(welcome, Bytes(Buffer(&outcome.welcome, kWelcomeBytes)));
  pass(3, &outcome.welcome);
  Welcome read;
  outcome.connecting = connecting.ReadWelcome(Bytes(&outcome.welcome), &read);
  if (outcome.connecting.ok()) {
    EXPECT_EQ(read.memory.address, 44u);
  }
  return outcome;
}

TEST(AuthenticationTest, TheSameSecretOrNoneOnBothSides) {
  for (const std::string secret : {"", kSecret}) {
    const Outcome outcome = Shake(secret, secret);
    EXPECT_TRUE(outcome.connecting.ok()) << outcome.connecting.ToString();
    EXPECT_TRUE(outcome.listening.ok()) << outcome.listening.ToString();
    EXPECT_EQ(outcome.seen.PeerName(), "worker 3");
    EXPECT_EQ(outcome.offered.pid, 11);
  }
}

TEST(AuthenticationTest, DifferentSecretsAreRefused) {
  const Outcome outcome = Shake("one", "another");
  EXPECT_EQ(outcome.listening.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(outcome.connecting.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(outcome.connecting.message().find("another secret"), std::string::npos);
}

TEST(AuthenticationTest, ASecretOnOneSideOnlyIsRefusedWithWhatToDo) {
  for (const auto& [connecting, listening] :
       {std::pair<std::string, std::string>{"", kSecret}, {kSecret, ""}}) {
    const Outcome outcome = Shake(connecting, listening);
    for (const Status& status : {outcome.connecting, outcome.listening}) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
      EXPECT_NE(status.message().find("BYTEPS_JOB_SECRET"), std::string::npos) << status.message();
    }
    EXPECT_EQ(outcome.response, "") << "the handshake went on";
  }
}

// A listener that does not ask for the secret gets nothing from a side that has one.
TEST(AuthenticationTest, NobodyInBetweenCanTakeTheDemandAway) {
  const Outcome outcome = Shake(kSecret, kSecret, [](int number, std::string* message) {
    if (number == 1) {
      Challenge challenge;
      EXPECT_TRUE(DecodeChallenge(Bytes(message), &challenge).ok());
      challenge.features = 0;
      EncodeChallenge(challenge, Bytes(message));
    }
  });
  EXPECT_EQ(outcome.connecting.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(outcome.response, "");
}

// Every byte of every message is covered by a proof or by a check of its form.
TEST(AuthenticationTest, AnyChangedByteEndsTheHandshake) {
  const size_t sizes[] = {kHelloBytes, kChallengeBytes, kResponseBytes, kWelcomeBytes};
  for (int changed = 0; changed < 4; ++changed) {
    for (size_t at = 0; at < sizes[changed]; ++at) {
      const Outcome outcome = Shake(kSecret, kSecret, [&](int number, std::string* message) {
        if (number == changed) (*message)[at] ^= 0x10;
      });
      EXPECT_FALSE(outcome.connecting.ok()) << "message " << changed << ", byte " << at;
    }
  }
}

TEST(AuthenticationTest, ARecordedHandshakeIsRefused) {
  const Outcome recorded = Shake(kSecret, kSecret);
  ListeningHandshake listening(kSecret, 0, RandomNonce());
  std::string hello = recorded.hello, response = recorded.response, challenge;
  Hello seen;
  ASSERT_TRUE(listening.ReadHello(Bytes(&hello), &seen).ok());
  listening.WriteChallenge(OkStatus(), Bytes(Buffer(&challenge, kChallengeBytes)));
  Response read;
  EXPECT_EQ(listening.ReadResponse(Bytes(&response), &read).code(),
            StatusCode::kFailedPrecondition);
}

// The proof of one side is not a proof of the other, though they are about the same messages.
TEST(AuthenticationTest, AProofCannotBeSentBack) {
  const Outcome outcome = Shake(kSecret, kSecret, [](int number, std::string* message) {
    static std::string proof;
    if (number == 2) proof = message->substr(message->size() - sizeof(Digest));
    if (number == 3) message->replace(message->size() - proof.size(), proof.size(), proof);
  });
  EXPECT_FALSE(outcome.connecting.ok());
}

TEST(AuthenticationTest, ARefusalCarriesNoProof) {
  const Outcome outcome = Shake("one", "another");
  EXPECT_EQ(outcome.welcome.substr(kWelcomeBytes - sizeof(Digest)),
            std::string(sizeof(Digest), '\0'));
}

}  // namespace
}  // namespace byteps
