#include "cc/wire/handshake.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "cc/wire/bytes.h"

namespace byteps {
namespace {

constexpr uint32_t kHelloMagic = 0x48535042;      // "BPSH"
constexpr uint32_t kChallengeMagic = 0x43535042;  // "BPSC"
constexpr uint32_t kResponseMagic = 0x52535042;   // "BPSR"
constexpr uint32_t kWelcomeMagic = 0x57535042;    // "BPSW"

// Text in a fixed field: its length, then its bytes, then zeros.
void PutFixed(ByteWriter& writer, const std::string& text, size_t capacity) {
  const size_t size = std::min(text.size(), capacity);
  writer.PutString(text.substr(0, size));
  for (size_t i = size; i < capacity; ++i) writer.Put(uint8_t{0});
}

void Store(ByteWriter& writer, uint8_t* out, size_t bytes) {
  std::string text = writer.Take();
  text.resize(bytes, '\0');
  std::memcpy(out, text.data(), bytes);
}

void StoreWithProof(ByteWriter& writer, const Digest& proof, uint8_t* out, size_t bytes) {
  Store(writer, out, bytes - proof.size());
  std::memcpy(out + bytes - proof.size(), proof.data(), proof.size());
}

void LoadProof(const uint8_t* in, size_t bytes, Digest* proof) {
  std::memcpy(proof->data(), in + bytes - proof->size(), proof->size());
}

void PutNonce(ByteWriter& writer, const Nonce& nonce) {
  for (const uint8_t byte : nonce) writer.Put(byte);
}

void GetNonce(ByteReader& reader, Nonce* nonce) {
  for (uint8_t& byte : *nonce) byte = reader.Get<uint8_t>();
}

void PutOffer(ByteWriter& writer, const MemoryOffer& offer) {
  writer.Put(offer.pid);
  writer.Put(offer.address);
}

MemoryOffer GetOffer(ByteReader& reader) {
  MemoryOffer offer;
  offer.pid = reader.Get<int64_t>();
  offer.address = reader.Get<uint64_t>();
  return offer;
}

constexpr size_t kMaxRefusalBytes = 400;

bool IsControlCharacter(char character) {
  const auto byte = static_cast<uint8_t>(character);
  return byte < 0x20 || byte == 0x7f;
}

// They would let a stranger write lines of his own into a log.
bool HasControlCharacters(const std::string& text) {
  return std::any_of(text.begin(), text.end(), IsControlCharacter);
}

void PutStatus(ByteWriter& writer, const Status& status) {
  writer.Put(kProtocolVersion);
  writer.Put(status.code());
  PutFixed(writer, status.message(), kMaxRefusalBytes);
}

// Refuses what is not the `magic` message of a tf_byteps process.
Status GetStatus(ByteReader& reader, uint32_t magic, Status* status) {
  if (reader.Get<uint32_t>() != magic) return InvalidArgument("the peer does not speak tf_byteps");
  const uint16_t version = reader.Get<uint16_t>();
  const StatusCode code = reader.Get<StatusCode>();
  std::string message = reader.GetString(kMaxRefusalBytes);
  for (size_t i = message.size(); i < kMaxRefusalBytes; ++i) reader.Get<uint8_t>();
  if (!reader.ok() || code > StatusCode::kInternal) {
    return InvalidArgument("malformed answer to a hello (the peer speaks protocol version " +
                           std::to_string(version) + ")");
  }
  std::replace_if(message.begin(), message.end(), IsControlCharacter, '?');
  *status = code == StatusCode::kOk ? OkStatus() : Status(code, std::move(message));
  return OkStatus();
}

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kWorker: return "worker";
    case Role::kServer: return "server";
    case Role::kCoordinator: return "coordinator";
  }
  return "unknown role";
}

Nonce RandomNonce() {
  Nonce nonce{};
  // Cannot fail for so few bytes once the kernel's pool is ready, and blocks until it is.
  while (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
  }
  return nonce;
}

void EncodeHello(const Hello& hello, uint8_t out[kHelloBytes]) {
  ByteWriter writer;
  writer.Put(kHelloMagic);
  writer.Put(hello.protocol_version);
  writer.Put(hello.features);
  writer.Put(hello.required_features);
  writer.Put(hello.epoch);
  writer.Put(hello.role);
  writer.Put(hello.rank);
  PutNonce(writer, hello.nonce);
  PutFixed(writer, hello.job_id, kMaxJobIdBytes);
  writer.Put(hello.path);
  writer.Put(static_cast<uint8_t>(hello.again));
  writer.Put(hello.to_role);
  writer.Put(hello.to_rank);
  Store(writer, out, kHelloBytes);
}

Status DecodeHello(const uint8_t in[kHelloBytes], Hello* hello) {
  ByteReader reader(in, kHelloBytes);
  if (reader.Get<uint32_t>() != kHelloMagic)
    return InvalidArgument("the peer does not speak tf_byteps");
  hello->protocol_version = reader.Get<uint16_t>();
  if (hello->protocol_version != kProtocolVersion) {
    return FailedPrecondition("the peer speaks protocol version " +
                              std::to_string(hello->protocol_version) + ", this side " +
                              std::to_string(kProtocolVersion) +
                              "; install the same tf_byteps everywhere");
  }
  hello->features = reader.Get<uint64_t>();
  hello->required_features = reader.Get<uint64_t>();
  hello->epoch = reader.Get<uint32_t>();
  hello->role = reader.Get<Role>();
  hello->rank = reader.Get<int32_t>();
  GetNonce(reader, &hello->nonce);
  hello->job_id = reader.GetString(kMaxJobIdBytes);
  for (size_t i = hello->job_id.size(); i < kMaxJobIdBytes; ++i) reader.Get<uint8_t>();
  hello->path = reader.Get<uint32_t>();
  hello->again = reader.Get<uint8_t>() != 0;
  hello->to_role = reader.Get<Role>();
  hello->to_rank = reader.Get<int32_t>();
  if (!reader.ok() || HasControlCharacters(hello->job_id))
    return InvalidArgument("malformed hello");
  for (const Role role : {hello->role, hello->to_role}) {
    if (role > Role::kCoordinator)
      return InvalidArgument("hello with unknown role " + std::to_string(static_cast<int>(role)));
  }
  if (hello->path >= kMaxPaths)
    return InvalidArgument("hello for connection " + std::to_string(hello->path));
  const uint64_t unknown = hello->required_features & ~kSupportedFeatures;
  if (unknown != 0) {
    return FailedPrecondition("the peer requires features that this side does not have (bits " +
                              std::to_string(unknown) + "); install the same tf_byteps everywhere");
  }
  return OkStatus();
}

bool BeginsHello(const void* data, size_t bytes) {
  if (bytes < sizeof(kHelloMagic)) return false;
  return ByteReader(static_cast<const uint8_t*>(data), sizeof(kHelloMagic)).Get<uint32_t>() ==
         kHelloMagic;
}

void EncodeChallenge(const Challenge& challenge, uint8_t out[kChallengeBytes]) {
  ByteWriter writer;
  writer.Put(kChallengeMagic);
  PutStatus(writer, challenge.status);
  writer.Put(challenge.features);
  PutNonce(writer, challenge.nonce);
  Store(writer, out, kChallengeBytes);
}

Status DecodeChallenge(const uint8_t in[kChallengeBytes], Challenge* challenge) {
  ByteReader reader(in, kChallengeBytes);
  BYTEPS_RETURN_IF_ERROR(GetStatus(reader, kChallengeMagic, &challenge->status));
  challenge->features = reader.Get<uint64_t>();
  GetNonce(reader, &challenge->nonce);
  return OkStatus();
}

void EncodeResponse(const Response& response, uint8_t out[kResponseBytes]) {
  ByteWriter writer;
  writer.Put(kResponseMagic);
  PutOffer(writer, response.memory);
  writer.Put(static_cast<uint8_t>(response.same_host));
  StoreWithProof(writer, response.proof, out, kResponseBytes);
}

Status DecodeResponse(const uint8_t in[kResponseBytes], Response* response) {
  ByteReader reader(in, kResponseBytes);
  if (reader.Get<uint32_t>() != kResponseMagic)
    return InvalidArgument("the peer does not speak tf_byteps");
  response->memory = GetOffer(reader);
  response->same_host = reader.Get<uint8_t>() != 0;
  LoadProof(in, kResponseBytes, &response->proof);
  return OkStatus();
}

void EncodeWelcome(const Welcome& welcome, uint8_t out[kWelcomeBytes]) {
  ByteWriter writer;
  writer.Put(kWelcomeMagic);
  PutStatus(writer, welcome.status);
  writer.Put(static_cast<uint8_t>(welcome.reads_memory));
  PutOffer(writer, welcome.memory);
  StoreWithProof(writer, welcome.proof, out, kWelcomeBytes);
}

Status DecodeWelcome(const uint8_t in[kWelcomeBytes], Welcome* welcome) {
  ByteReader reader(in, kWelcomeBytes);
  BYTEPS_RETURN_IF_ERROR(GetStatus(reader, kWelcomeMagic, &welcome->status));
  welcome->reads_memory = reader.Get<uint8_t>() != 0;
  welcome->memory = GetOffer(reader);
  LoadProof(in, kWelcomeBytes, &welcome->proof);
  return OkStatus();
}

Status CheckHello(const Hello& hello, const std::string& job_id, uint32_t epoch, Role role,
                  int32_t rank) {
  if (hello.job_id != job_id) {
    return FailedPrecondition(hello.PeerName() + " belongs to job \"" + hello.job_id +
                              "\", this is job \"" + job_id +
                              "\"; two jobs were given the same address");
  }
  if (hello.epoch != epoch) {
    return FailedPrecondition(hello.PeerName() + " is in membership epoch " +
                              std::to_string(hello.epoch) + ", this side in " +
                              std::to_string(epoch));
  }
  if (hello.to_role != role || hello.to_rank != rank) {
    return FailedPrecondition(hello.PeerName() + " has asked for " +
                              std::string(RoleName(hello.to_role)) + " " +
                              std::to_string(hello.to_rank) + ", and this is " + RoleName(role) +
                              " " + std::to_string(rank) +
                              "; two processes were given the same address, or somebody in between "
                              "has led it here");
  }
  return OkStatus();
}

}  // namespace byteps
