// The handshake, both sides. The first byte says whether they have a secret. Whoever does not know
// it must not get through.
#include <cstring>

#include "cc/fuzz/fuzz.h"
#include "cc/wire/authentication.h"

namespace byteps {
namespace {

const char kSecret[] = "a secret that no input knows";

// Its first byte, then messages with zeros at their end where the input is too short.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  template <size_t N>
  void Take(uint8_t (&message)[N]) {
    std::memset(message, 0, N);
    const size_t bytes = std::min(N, size_);
    if (bytes > 0) std::memcpy(message, data_, bytes);
    data_ += bytes;
    size_ -= bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

void Listen(const std::string& secret, Input input) {
  ListeningHandshake handshake(secret, 0, Nonce{});
  uint8_t hello_bytes[kHelloBytes], challenge[kChallengeBytes], response_bytes[kResponseBytes];
  input.Take(hello_bytes);
  Hello hello;
  if (!handshake.ReadHello(hello_bytes, &hello).ok()) return;
  FuzzCheck(hello.role <= Role::kCoordinator, "a role is known");
  FuzzCheck(hello.job_id.size() <= kMaxJobIdBytes, "a job id is bounded");
  FuzzCheck(hello.path < kMaxPaths, "a path is bounded");
  FuzzCheck(hello.to_role <= Role::kCoordinator, "who is meant has a known role");
  hello.PeerName();
  CheckHello(hello, "job", 0, Role::kServer, 0).ok();
  handshake.WriteChallenge(OkStatus(), challenge);
  input.Take(response_bytes);
  Response response;
  const bool admitted = handshake.ReadResponse(response_bytes, &response).ok();
  FuzzCheck(!admitted || secret.empty(), "nobody gets in without the secret");
}

void Connect(const std::string& secret, Input input) {
  Hello hello;
  hello.job_id = "job";
  ConnectingHandshake handshake(secret, hello);
  uint8_t hello_bytes[kHelloBytes], challenge_bytes[kChallengeBytes], response[kResponseBytes],
      welcome_bytes[kWelcomeBytes];
  handshake.WriteHello(hello_bytes);
  input.Take(challenge_bytes);
  Challenge challenge;
  if (!handshake.ReadChallenge(challenge_bytes, &challenge).ok()) return;
  handshake.WriteResponse({}, response);
  input.Take(welcome_bytes);
  Welcome welcome;
  const bool accepted = handshake.ReadWelcome(welcome_bytes, &welcome).ok();
  FuzzCheck(!accepted || secret.empty(), "nobody is believed without the secret");
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const char mode : {'\0', '\1'}) {
    const std::string secret = mode == 0 ? "" : "another secret";
    Hello hello;
    hello.job_id = "job";
    hello.path = 3;
    hello.again = mode == 1;
    ConnectingHandshake connecting(secret, hello);
    ListeningHandshake listening(secret, 0, Nonce{});
    uint8_t bytes[kHelloBytes], challenge[kChallengeBytes], response[kResponseBytes],
        welcome[kWelcomeBytes];
    connecting.WriteHello(bytes);
    listening.ReadHello(bytes, &hello).ok();
    listening.WriteChallenge(OkStatus(), challenge);
    Challenge read;
    connecting.ReadChallenge(challenge, &read).ok();
    connecting.WriteResponse({true, {4711, 4712}}, response);
    listening.WriteWelcome(Welcome(), welcome);
    const std::string first(1, mode);
    seeds.push_back(first + FuzzText(bytes) + FuzzText(response));
    seeds.push_back(first + FuzzText(challenge) + FuzzText(welcome));
    listening.WriteChallenge(FailedPrecondition("no"), challenge);
    seeds.push_back(first + FuzzText(challenge));
  }
  return seeds;
}

}  // namespace byteps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace byteps;
  if (size == 0) return 0;
  const std::string secret = data[0] % 2 == 0 ? "" : kSecret;
  Listen(secret, {data + 1, size - 1});
  Connect(secret, {data + 1, size - 1});
  return 0;
}
