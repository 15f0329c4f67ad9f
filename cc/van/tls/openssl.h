// What is used of OpenSSL (1.1.1 or later), which is opened at run time, so that one build works on
// machines with and without it. The declarations are our own: the build needs no header of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cc/base/status.h"

namespace byteps::openssl {

struct SSL;
struct SSL_CTX;
struct SSL_METHOD;
struct BIO;
struct BIO_METHOD;

using PskClientCallback = unsigned int (*)(SSL* ssl, const char* hint, char* identity,
                                           unsigned int identity_bytes, unsigned char* key,
                                           unsigned int key_bytes);
using PskServerCallback = unsigned int (*)(SSL* ssl, const char* identity, unsigned char* key,
                                           unsigned int key_bytes);

inline constexpr uint64_t OPENSSL_INIT_NO_ATEXIT = 0x00080000;
inline constexpr long TLS1_3_VERSION = 0x0304;
inline constexpr long SSL_SESS_CACHE_OFF = 0;
inline constexpr int SSL_CTRL_SET_READ_AHEAD = 41;
inline constexpr int SSL_CTRL_SET_SESS_CACHE_MODE = 44;
inline constexpr int SSL_CTRL_SET_MIN_PROTO_VERSION = 123;
inline constexpr int SSL_VERIFY_PEER = 1;
inline constexpr int SSL_ERROR_WANT_READ = 2;
inline constexpr int SSL_KEY_UPDATE_NOT_REQUESTED = 0;
inline constexpr int BIO_TYPE_SOURCE_SINK = 0x400;
inline constexpr int BIO_FLAGS_READ = 1;
inline constexpr int BIO_FLAGS_SHOULD_RETRY = 8;
inline constexpr int BIO_CTRL_FLUSH = 11;

struct OpenSsl {
  int (*OPENSSL_init_ssl)(uint64_t options, const void* settings);
  const SSL_METHOD* (*TLS_method)();
  SSL_CTX* (*SSL_CTX_new)(const SSL_METHOD* method);
  void (*SSL_CTX_free)(SSL_CTX* context);
  long (*SSL_CTX_ctrl)(SSL_CTX* context, int command, long number, void* pointer);
  int (*SSL_CTX_set_ciphersuites)(SSL_CTX* context, const char* names);
  int (*SSL_CTX_set_num_tickets)(SSL_CTX* context, size_t count);
  void (*SSL_CTX_set_psk_client_callback)(SSL_CTX* context, PskClientCallback callback);
  void (*SSL_CTX_set_psk_server_callback)(SSL_CTX* context, PskServerCallback callback);
  SSL* (*SSL_new)(SSL_CTX* context);
  void (*SSL_free)(SSL* ssl);
  int (*SSL_set_ex_data)(SSL* ssl, int index, void* data);
  void* (*SSL_get_ex_data)(const SSL* ssl, int index);
  void (*SSL_set_bio)(SSL* ssl, BIO* read, BIO* write);
  void (*SSL_set_accept_state)(SSL* ssl);
  void (*SSL_set_connect_state)(SSL* ssl);
  void (*SSL_set_verify)(SSL* ssl, int mode, void* callback);
  int (*SSL_do_handshake)(SSL* ssl);
  int (*SSL_is_init_finished)(const SSL* ssl);
  int (*SSL_read)(SSL* ssl, void* data, int bytes);
  int (*SSL_write)(SSL* ssl, const void* data, int bytes);
  int (*SSL_get_error)(const SSL* ssl, int result);
  int (*SSL_has_pending)(const SSL* ssl);
  int (*SSL_key_update)(SSL* ssl, int kind);
  void (*SSL_set_default_read_buffer_len)(SSL* ssl, size_t bytes);
  int (*SSL_free_buffers)(SSL* ssl);
  unsigned long (*ERR_get_error)();
  void (*ERR_clear_error)();
  const char* (*ERR_reason_error_string)(unsigned long error);
  BIO_METHOD* (*BIO_meth_new)(int type, const char* name);
  void (*BIO_meth_free)(BIO_METHOD* method);
  int (*BIO_meth_set_read)(BIO_METHOD* method, int (*read)(BIO*, char*, int));
  int (*BIO_meth_set_write)(BIO_METHOD* method, int (*write)(BIO*, const char*, int));
  int (*BIO_meth_set_ctrl)(BIO_METHOD* method, long (*control)(BIO*, int, long, void*));
  BIO* (*BIO_new)(const BIO_METHOD* method);
  void (*BIO_set_data)(BIO* bio, void* data);
  void* (*BIO_get_data)(BIO* bio);
  void (*BIO_set_init)(BIO* bio, int init);
  void (*BIO_set_flags)(BIO* bio, int flags);
  void (*BIO_clear_flags)(BIO* bio, int flags);
};

// The system's, once for the process. FAILED_PRECONDITION: it is not installed, or too old.
Status SystemOpenSsl(const OpenSsl** openssl);

}  // namespace byteps::openssl
