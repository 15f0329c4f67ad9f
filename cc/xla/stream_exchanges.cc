#include "cc/xla/stream_exchanges.h"

namespace byteps {

StreamExchanges& AllStreamExchanges() {
  static auto* const all = new StreamExchanges;  // engine threads may outlive static objects
  return *all;
}

}  // namespace byteps
