#include "cc/van/tls/openssl.h"

#include "cc/base/dynamic_library.h"

namespace byteps::openssl {
namespace {

// Isolated: TensorFlow brings BoringSSL along and makes it global, with functions of the same
// names.
Status Load(OpenSsl* table) {
  DynamicLibrary library;
  const Status opened = library.Open({"libssl.so.3", "libssl.so.1.1"}, /*isolated=*/true);
  if (!opened.ok()) {
    return FailedPrecondition(
        "BYTEPS_TLS=1 demands TLS, which needs OpenSSL, and it is not installed (" +
        opened.message() + "); on Debian and Ubuntu: apt-get install libssl3");
  }
#define BYTEPS_FIND(name) BYTEPS_RETURN_IF_ERROR(library.Find(#name, &table->name))
  BYTEPS_FIND(OPENSSL_init_ssl);
  BYTEPS_FIND(TLS_method);
  BYTEPS_FIND(SSL_CTX_new);
  BYTEPS_FIND(SSL_CTX_free);
  BYTEPS_FIND(SSL_CTX_ctrl);
  BYTEPS_FIND(SSL_CTX_set_ciphersuites);
  BYTEPS_FIND(SSL_CTX_set_num_tickets);
  BYTEPS_FIND(SSL_CTX_set_psk_client_callback);
  BYTEPS_FIND(SSL_CTX_set_psk_server_callback);
  BYTEPS_FIND(SSL_new);
  BYTEPS_FIND(SSL_free);
  BYTEPS_FIND(SSL_set_ex_data);
  BYTEPS_FIND(SSL_get_ex_data);
  BYTEPS_FIND(SSL_set_bio);
  BYTEPS_FIND(SSL_set_accept_state);
  BYTEPS_FIND(SSL_set_connect_state);
  BYTEPS_FIND(SSL_set_verify);
  BYTEPS_FIND(SSL_do_handshake);
  BYTEPS_FIND(SSL_is_init_finished);
  BYTEPS_FIND(SSL_read);
  BYTEPS_FIND(SSL_write);
  BYTEPS_FIND(SSL_get_error);
  BYTEPS_FIND(SSL_has_pending);
  BYTEPS_FIND(SSL_key_update);
  BYTEPS_FIND(SSL_set_default_read_buffer_len);
  BYTEPS_FIND(SSL_free_buffers);
  BYTEPS_FIND(ERR_get_error);
  BYTEPS_FIND(ERR_clear_error);
  BYTEPS_FIND(ERR_reason_error_string);
  BYTEPS_FIND(BIO_meth_new);
  BYTEPS_FIND(BIO_meth_free);
  BYTEPS_FIND(BIO_meth_set_read);
  BYTEPS_FIND(BIO_meth_set_write);
  BYTEPS_FIND(BIO_meth_set_ctrl);
  BYTEPS_FIND(BIO_new);
  BYTEPS_FIND(BIO_set_data);
  BYTEPS_FIND(BIO_get_data);
  BYTEPS_FIND(BIO_set_init);
  BYTEPS_FIND(BIO_set_flags);
  BYTEPS_FIND(BIO_clear_flags);
#undef BYTEPS_FIND
  // It would clean up in exit(), while threads of a process that ends abruptly still use it.
  if (table->OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr) != 1)
    return FailedPrecondition("OpenSSL (" + library.name() + ") cannot be initialized");
  return OkStatus();
}

struct System {
  OpenSsl table{};
  Status status = Load(&table);
};

}  // namespace

Status SystemOpenSsl(const OpenSsl** openssl) {
  static const System* const system = new System;  // threads may outlive statics
  *openssl = &system->table;
  return system->status;
}

}  // namespace byteps::openssl
