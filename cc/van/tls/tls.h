// TLS 1.3 (RFC 8446) under a connection, without certificates: both sides prove with a pre-shared
// key, derived from the job's secret, that they know it. Each connection has keys of its own, from
// a Diffie-Hellman exchange, so that nobody who learns the secret later can read what was recorded.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cc/base/sha256.h"
#include "cc/base/status.h"
#include "cc/van/counters.h"
#include "cc/van/tls/openssl.h"

namespace byteps {

enum class TlsSide { kConnecting, kListening };

// What all connections of a Van share. Thread-safe, and outlives its sessions.
class TlsContext {
 public:
  // `secret`: not empty. FAILED_PRECONDITION: there is none, or no OpenSSL.
  static Status Create(const std::string& secret, uint64_t records_per_key,
                       std::unique_ptr<TlsContext>* context);
  ~TlsContext();

 private:
  friend class TlsSession;
  TlsContext(const openssl::OpenSsl& openssl, const std::string& secret, uint64_t records_per_key);
  Status Prepare();

  const openssl::OpenSsl& openssl_;
  const Digest key_;
  const uint64_t records_per_key_;
  openssl::SSL_CTX* context_ = nullptr;
  openssl::BIO_METHOD* method_ = nullptr;  // how sessions use their sockets
};

// One connection's. Thread-safe. Calls never wait. `peer` is a name for messages.
//
// FAILED_PRECONDITION: the peer does not know the secret, or speaks in clear; for good.
// UNAVAILABLE: the connection has ended, or somebody has changed its bytes.
class TlsSession {
 public:
  // `descriptor` is non-blocking, and is used until the session ends.
  TlsSession(const TlsContext& context, int descriptor, TlsSide side, AtomicVanCounters* counters);
  ~TlsSession();

  // `wants`: POLLIN or POLLOUT, for which the next call has to wait; 0: done. The side that listens
  // leaves it to Receive.
  Status Handshake(const std::string& peer, short* wants);

  // Sets how many bytes have been received; less than `bytes`: there are no more at present.
  Status Receive(const std::string& peer, void* data, size_t bytes, size_t* received);

  // Sets how many bytes have been sent; less than all: the socket is full. The next call must go on
  // with those that follow.
  Status Send(const std::string& peer, const iovec* pieces, size_t count, size_t* sent);

  // Something has been taken from the socket that Receive has not returned.
  bool HoldsBytes();

  bool has_received() const { return has_received_; }
  // A Hello in clear was received instead of TLS.
  bool peer_said_hello_in_clear() const { return said_hello_in_clear_; }

 private:
  // OpenSSL's ways to the socket and to the key, with the mutex held.
  static int ReadSocket(openssl::BIO* bio, char* data, int bytes);
  static int WriteSocket(openssl::BIO* bio, const char* data, int bytes);
  static long ControlSocket(openssl::BIO* bio, int command, long number, void* pointer);
  static unsigned int ClientKey(openssl::SSL* ssl, const char* hint, char* identity,
                                unsigned int identity_bytes, unsigned char* key,
                                unsigned int key_bytes);
  static unsigned int ServerKey(openssl::SSL* ssl, const char* identity, unsigned char* key,
                                unsigned int key_bytes);
  unsigned int CopyKey(unsigned char* key, unsigned int key_bytes) const;
  friend class TlsContext;

  // With the mutex held.
  bool OnlyWaits(int result) const;
  Status Failure(const std::string& peer) const;
  Status Flush(const std::string& peer);
  Status WriteRecord(const std::string& peer, const uint8_t* data, size_t bytes);
  struct Place;
  Status WriteRecords(const std::string& peer, Place place, size_t* written);
  void GrowOnceOpen();

  const TlsContext& context_;
  const openssl::OpenSsl& openssl_;
  const int descriptor_;
  AtomicVanCounters* const counters_;
  std::mutex mutex_;  // guards all below
  openssl::SSL* ssl_ = nullptr;
  bool is_open_ = false;  // the handshake is done
  bool has_grown_ = false;
  uint64_t records_sent_ = 0;      // with the present key
  std::vector<uint8_t> gathered_;  // a record's bytes, of several pieces
  std::vector<uint8_t> unsent_;    // encrypted, for the socket; empty once it has taken all
  size_t begin_of_unsent_ = 0;     // what the socket has taken of it
  size_t bytes_of_unsent_ = 0;     // of a Send: counted as sent once they are
  // What the socket has said.
  std::atomic<bool> has_received_{false};
  bool is_in_clear_ = false;
  std::atomic<bool> said_hello_in_clear_{false};
  bool has_ended_ = false;
  int socket_error_ = 0;
};

// Whether what has arrived so far, of anybody, is how TLS begins.
bool BeginsTls(const void* data, size_t bytes);
inline constexpr size_t kLeastTlsBytes = 3;  // by which it is told from what is none

// What both sides say if only one of them uses TLS: `this_side` or the other.
Status OnlyOneSideUsesTls(bool this_side);

}  // namespace byteps
