// TensorPlacement: tensors are declared, get parts and owners, and are cut again, as the
// coordinator says.
#pragma once

#include "cc/wire/control.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/exchanges.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/transmission.h"

namespace byteps {

// Not thread-safe.
class TensorPlacement {
 public:
  // All of them outlive it.
  TensorPlacement(KeyTable* keys, ServerLinks* servers, Transmission* transmission,
                  Exchanges* exchanges)
      : keys_(keys), servers_(servers), transmission_(transmission), exchanges_(exchanges) {}

  // A tensor will be exchanged. `start_step`: see Exchanges::Begin.
  void Declare(TensorDescription tensor, uint64_t start_step);
  Status OnDeclareReply(DeclareReply reply, Effects* effects);

  // New cuts are to come, and then are there.
  void OnPauseRounds(Effects* effects);
  Status OnRetune(Retune retune, Effects* effects);

 private:
  KeyTable* const keys_;
  ServerLinks* const servers_;
  Transmission* const transmission_;
  Exchanges* const exchanges_;
};

}  // namespace byteps
