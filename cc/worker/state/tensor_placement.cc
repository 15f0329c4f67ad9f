#include "cc/worker/state/tensor_placement.h"

#include <memory>
#include <utility>
#include <vector>

namespace byteps {

void TensorPlacement::Declare(TensorDescription tensor, uint64_t start_step) {
  KeyTable::Key& key = keys_->FindOrAdd(tensor.name);
  if (key.next_round % kRoundsOfTraining < start_step) tensor.codec.clear();
  keys_->Declare(key, tensor);
}

Status TensorPlacement::OnDeclareReply(DeclareReply reply, Effects* effects) {
  std::vector<TensorDescription> declared;
  BYTEPS_RETURN_IF_ERROR(keys_->TakeAnswered(reply, &declared));
  for (size_t i = 0; i < declared.size(); ++i) {
    KeyTable::Key& key = keys_->FindOrAdd(declared[i].name);
    DeclareResult& result = reply.results[i];
    if (!result.status.ok()) {
      exchanges_->OnRefused(key, declared[i], result.status, effects);
      continue;
    }
    BYTEPS_RETURN_IF_ERROR(keys_->Place(key, declared[i], std::move(result.entry)));
    transmission_->RaiseCredit(*keys_->FindOrAddVariant(key, declared[i]).entry);
    exchanges_->DispatchIfPlaced(key, effects);
  }
  exchanges_->SendDeclarations(effects);
  return OkStatus();
}

void TensorPlacement::OnPauseRounds(Effects* effects) {
  exchanges_->PausePlacement();
  effects->messages.push_back(keys_->NextRoundsToPlace());
}

Status TensorPlacement::OnRetune(Retune retune, Effects* effects) {
  transmission_->Tune(retune.credit_bytes);
  servers_->LimitUnsent(retune.unsent_bytes);
  for (std::shared_ptr<Connection>& connection : servers_->connections())
    effects->limits.push_back({std::move(connection), retune.unsent_bytes});
  for (NewCut& cut : retune.cuts) BYTEPS_RETURN_IF_ERROR(keys_->CutAgain(std::move(cut)));
  exchanges_->ResumePlacement(effects);
  transmission_->Pump(effects);
  return OkStatus();
}

}  // namespace byteps
