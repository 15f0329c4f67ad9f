#include "cc/van/tls/tls.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "cc/wire/authentication.h"
#include "cc/wire/handshake.h"

namespace byteps {
namespace {

using namespace openssl;

constexpr char kKeyLabel[] = "tf_byteps tls 1.3 psk";
constexpr char kIdentity[] = "tf_byteps";  // travels in clear
constexpr char kCiphers[] = "TLS_AES_128_GCM_SHA256";
constexpr size_t kRecordBytes = 16 * 1024;  // the most that TLS has
// Encrypted and handed to the socket together: a system call for each costs as much as to encrypt
// it. Nothing overtakes these any more (protocol rule 14).
constexpr size_t kRecordsAtOnce = 8;
// Read at once from the socket, after the handshake: a stranger costs the least that is possible.
constexpr size_t kReadBytes = 128 * 1024;

constexpr uint8_t kAlertRecord = 21;
constexpr uint8_t kHandshakeRecord = 22;
constexpr uint8_t kMajorVersion = 3;

// Room for encrypted records, which the sessions that a thread serves use in turns.
std::vector<uint8_t>& SpareRoom() {
  thread_local std::vector<uint8_t> room;
  return room;
}

// For OpenSSL's calls back, which come from where it has been opened.
const OpenSsl& Table() {
  const OpenSsl* table = nullptr;
  SystemOpenSsl(&table).ok();
  return *table;
}

}  // namespace

bool BeginsTls(const void* data, size_t bytes) {
  const auto* const first = static_cast<const uint8_t*>(data);
  if (bytes == 0 || (first[0] != kHandshakeRecord && first[0] != kAlertRecord)) return false;
  return bytes == 1 || first[1] == kMajorVersion;
}

Status OnlyOneSideUsesTls(bool this_side) {
  return FailedPrecondition(
      std::string("this side ") +
      (this_side ? "uses TLS, and the peer does not" : "does not use TLS, and the peer does") +
      "; give all processes of a job the same BYTEPS_TLS");
}

TlsContext::TlsContext(const OpenSsl& openssl, const std::string& secret, uint64_t records_per_key)
    : openssl_(openssl), key_(HmacSha256(secret, kKeyLabel)), records_per_key_(records_per_key) {}

TlsContext::~TlsContext() {
  if (context_ != nullptr) openssl_.SSL_CTX_free(context_);
  if (method_ != nullptr) openssl_.BIO_meth_free(method_);
}

Status TlsContext::Create(const std::string& secret, uint64_t records_per_key,
                          std::unique_ptr<TlsContext>* context) {
  if (secret.empty())
    return FailedPrecondition(
        std::string("BYTEPS_TLS=1 demands TLS, whose keys follow from a secret, and this job has "
                    "none; ") +
        kHowToGiveASecret);
  const OpenSsl* openssl = nullptr;
  BYTEPS_RETURN_IF_ERROR(SystemOpenSsl(&openssl));
  context->reset(new TlsContext(*openssl, secret, records_per_key));
  return (*context)->Prepare();
}

Status TlsContext::Prepare() {
  context_ = openssl_.SSL_CTX_new(openssl_.TLS_method());
  method_ = openssl_.BIO_meth_new(BIO_TYPE_SOURCE_SINK, "tf_byteps socket");
  if (context_ == nullptr || method_ == nullptr) return ResourceExhausted("OpenSSL: no memory");
  openssl_.BIO_meth_set_read(method_, &TlsSession::ReadSocket);
  openssl_.BIO_meth_set_write(method_, &TlsSession::WriteSocket);
  openssl_.BIO_meth_set_ctrl(method_, &TlsSession::ControlSocket);
  openssl_.SSL_CTX_ctrl(context_, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  openssl_.SSL_CTX_ctrl(context_, SSL_CTRL_SET_READ_AHEAD, 1, nullptr);
  openssl_.SSL_CTX_set_num_tickets(context_, 0);
  openssl_.SSL_CTX_set_psk_client_callback(context_, &TlsSession::ClientKey);
  openssl_.SSL_CTX_set_psk_server_callback(context_, &TlsSession::ServerKey);
  const bool is_tls_1_3 =
      openssl_.SSL_CTX_ctrl(context_, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr) == 1;
  if (!is_tls_1_3 || openssl_.SSL_CTX_set_ciphersuites(context_, kCiphers) != 1)
    return FailedPrecondition(std::string("BYTEPS_TLS=1 demands TLS 1.3 with ") + kCiphers +
                              ", which the system's OpenSSL, or its configuration, does not have");
  return OkStatus();
}

TlsSession::TlsSession(const TlsContext& context, int descriptor, TlsSide side,
                       AtomicVanCounters* counters)
    : context_(context),
      openssl_(context.openssl_),
      descriptor_(descriptor),
      counters_(counters),
      ssl_(openssl_.SSL_new(context.context_)) {
  BIO* const bio = openssl_.BIO_new(context.method_);
  openssl_.BIO_set_data(bio, this);
  openssl_.BIO_set_init(bio, 1);
  openssl_.SSL_set_bio(ssl_, bio, bio);  // which owns it
  openssl_.SSL_set_ex_data(ssl_, 0, this);
  if (side == TlsSide::kConnecting) {
    openssl_.SSL_set_connect_state(ssl_);
    // Who shows a certificate instead of the key is not believed: none is trusted.
    openssl_.SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
  } else {
    openssl_.SSL_set_accept_state(ssl_);
  }
}

TlsSession::~TlsSession() { openssl_.SSL_free(ssl_); }

int TlsSession::ReadSocket(BIO* bio, char* data, int bytes) {
  TlsSession& self = *static_cast<TlsSession*>(Table().BIO_get_data(bio));
  Table().BIO_clear_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
  const ssize_t received = recv(self.descriptor_, data, bytes, 0);
  if (received < 0) {
    if (errno == EAGAIN || errno == EINTR) {
      Table().BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
    } else {
      self.socket_error_ = errno;
    }
    return -1;
  }
  self.has_ended_ = received == 0;
  self.counters_->wire_bytes_received += received;
  if (received > 0 && !self.has_received_) {
    self.has_received_ = true;
    self.is_in_clear_ = !BeginsTls(data, received);
    self.said_hello_in_clear_ = BeginsHello(data, received);
    if (self.is_in_clear_) return -1;
  }
  return static_cast<int>(received);
}

// Takes everything, for Flush: OpenSSL may want to send something in the middle of receiving, and
// must not wait for it there.
int TlsSession::WriteSocket(BIO* bio, const char* data, int bytes) {
  TlsSession& self = *static_cast<TlsSession*>(Table().BIO_get_data(bio));
  if (self.unsent_.capacity() == 0) self.unsent_.swap(SpareRoom());
  const auto* const record = reinterpret_cast<const uint8_t*>(data);
  self.unsent_.insert(self.unsent_.end(), record, record + bytes);
  return bytes;
}

long TlsSession::ControlSocket(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

unsigned int TlsSession::CopyKey(unsigned char* key, unsigned int key_bytes) const {
  if (key_bytes < context_.key_.size()) return 0;
  std::memcpy(key, context_.key_.data(), context_.key_.size());
  return static_cast<unsigned int>(context_.key_.size());
}

unsigned int TlsSession::ClientKey(SSL* ssl, const char*, char* identity,
                                   unsigned int identity_bytes, unsigned char* key,
                                   unsigned int key_bytes) {
  if (identity_bytes < sizeof(kIdentity)) return 0;
  std::memcpy(identity, kIdentity, sizeof(kIdentity));
  return static_cast<TlsSession*>(Table().SSL_get_ex_data(ssl, 0))->CopyKey(key, key_bytes);
}

unsigned int TlsSession::ServerKey(SSL* ssl, const char* identity, unsigned char* key,
                                   unsigned int key_bytes) {
  if (identity == nullptr || std::strcmp(identity, kIdentity) != 0) return 0;
  return static_cast<TlsSession*>(Table().SSL_get_ex_data(ssl, 0))->CopyKey(key, key_bytes);
}

bool TlsSession::OnlyWaits(int result) const {
  return openssl_.SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ;
}

Status TlsSession::Failure(const std::string& peer) const {
  if (is_in_clear_) return OnlyOneSideUsesTls(true);
  if (socket_error_ != 0) {
    errno = socket_error_;
    return Unavailable(ErrnoMessage("exchange TLS records with " + peer));
  }
  if (has_ended_) return Unavailable(peer + " closed the connection");
  const char* const text = openssl_.ERR_reason_error_string(openssl_.ERR_get_error());
  const std::string reason = text != nullptr ? text : "OpenSSL does not say why";
  if (is_open_)
    return Unavailable("TLS with " + peer + " has broken (" + reason +
                       "): somebody in between may have changed what was sent");
  return FailedPrecondition("no TLS with " + peer + " (" + reason +
                            "): it has another secret, or none; " + kHowToGiveASecret);
}

Status TlsSession::Flush(const std::string& peer) {
  while (begin_of_unsent_ < unsent_.size()) {
    const ssize_t sent = send(descriptor_, unsent_.data() + begin_of_unsent_,
                              unsent_.size() - begin_of_unsent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return OkStatus();
    if (sent < 0) {
      socket_error_ = errno;
      return Failure(peer);
    }
    counters_->wire_bytes_sent += sent;
    begin_of_unsent_ += sent;
  }
  unsent_.clear();
  begin_of_unsent_ = 0;
  // An idle session keeps no room.
  if (unsent_.capacity() > SpareRoom().capacity()) unsent_.swap(SpareRoom());
  if (unsent_.capacity() > 0) std::vector<uint8_t>().swap(unsent_);
  return OkStatus();
}

Status TlsSession::Handshake(const std::string& peer, short* wants) {
  std::lock_guard<std::mutex> lock(mutex_);
  openssl_.ERR_clear_error();
  const int result = openssl_.SSL_do_handshake(ssl_);
  const bool has_failed = result != 1 && !OnlyWaits(result);
  is_open_ = result == 1;
  const Status flushed = Flush(peer);  // also why it has failed
  if (has_failed) return Failure(peer);
  BYTEPS_RETURN_IF_ERROR(flushed);
  *wants = !unsent_.empty() ? POLLOUT : is_open_ ? 0 : POLLIN;
  return OkStatus();
}

// Once the handshake is done, and nothing is in the small buffer.
void TlsSession::GrowOnceOpen() {
  if (!is_open_ || has_grown_) return;
  openssl_.SSL_set_default_read_buffer_len(ssl_, kReadBytes);
  has_grown_ = openssl_.SSL_free_buffers(ssl_) == 1;
}

Status TlsSession::Receive(const std::string& peer, void* data, size_t bytes, size_t* received) {
  *received = 0;
  while (*received < bytes) {
    std::lock_guard<std::mutex> lock(mutex_);  // for one record: a Send of few bytes gets its turn
    openssl_.ERR_clear_error();
    const size_t most = std::min<size_t>(bytes - *received, std::numeric_limits<int>::max());
    const int result =
        openssl_.SSL_read(ssl_, static_cast<uint8_t*>(data) + *received, static_cast<int>(most));
    const bool only_waits = result <= 0 && OnlyWaits(result);
    // The answer to a change of keys, say. Where the socket is broken, the next call finds that.
    if (!unsent_.empty()) (void)Flush(peer);
    if (result > 0) {
      is_open_ = true;
      *received += result;
      continue;
    }
    if (only_waits) {
      GrowOnceOpen();
      return OkStatus();
    }
    // The end of the connection will be found again.
    return has_ended_ && *received > 0 ? OkStatus() : Failure(peer);
  }
  return OkStatus();
}

Status TlsSession::WriteRecord(const std::string& peer, const uint8_t* data, size_t bytes) {
  openssl_.ERR_clear_error();
  if (records_sent_ >= context_.records_per_key_) {
    if (openssl_.SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return Failure(peer);
    records_sent_ = 0;
  }
  const int result = openssl_.SSL_write(ssl_, data, static_cast<int>(bytes));
  if (result != static_cast<int>(bytes)) return Failure(peer);
  ++records_sent_;
  return OkStatus();
}

// Where in some pieces of memory the next record begins.
struct TlsSession::Place {
  const iovec* piece;
  const iovec* end;
  size_t offset = 0;

  void Advance(size_t bytes) {
    for (offset += bytes; piece < end && offset >= piece->iov_len; ++piece)
      offset -= piece->iov_len;
  }
};

// Encrypts what comes next, as much as goes at once. Sets how many bytes of the pieces that were.
Status TlsSession::WriteRecords(const std::string& peer, Place place, size_t* written) {
  for (size_t record = 0; record < kRecordsAtOnce && place.piece < place.end; ++record) {
    const auto* data = static_cast<const uint8_t*>(place.piece->iov_base) + place.offset;
    size_t bytes = std::min(place.piece->iov_len - place.offset, kRecordBytes);
    if (bytes < kRecordBytes && place.piece + 1 < place.end) {
      gathered_.assign(data, data + bytes);
      for (const iovec* next = place.piece + 1; next < place.end && gathered_.size() < kRecordBytes;
           ++next) {
        const auto* const more = static_cast<const uint8_t*>(next->iov_base);
        gathered_.insert(gathered_.end(), more,
                         more + std::min(next->iov_len, kRecordBytes - gathered_.size()));
      }
      data = gathered_.data();
      bytes = gathered_.size();
    }
    BYTEPS_RETURN_IF_ERROR(WriteRecord(peer, data, bytes));
    *written += bytes;
    place.Advance(bytes);
  }
  return OkStatus();
}

Status TlsSession::Send(const std::string& peer, const iovec* pieces, size_t count, size_t* sent) {
  *sent = 0;
  Place place{pieces, pieces + count};
  place.Advance(0);
  while (place.piece < place.end) {
    std::lock_guard<std::mutex> lock(mutex_);  // for as many as go at once
    if (unsent_.empty() && bytes_of_unsent_ == 0)
      BYTEPS_RETURN_IF_ERROR(WriteRecords(peer, place, &bytes_of_unsent_));
    BYTEPS_RETURN_IF_ERROR(Flush(peer));
    if (!unsent_.empty()) return OkStatus();
    *sent += bytes_of_unsent_;
    place.Advance(std::exchange(bytes_of_unsent_, 0));
  }
  return OkStatus();
}

bool TlsSession::HoldsBytes() {
  std::lock_guard<std::mutex> lock(mutex_);
  return openssl_.SSL_has_pending(ssl_) == 1;
}

}  // namespace byteps
