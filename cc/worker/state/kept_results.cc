#include "cc/worker/state/kept_results.h"

#include <utility>

namespace byteps {

void KeptResults::ReportResults(Effects* effects) {
  ResultProgress progress = keys_->NewIdleResults(effects->now.ns);
  if (!progress.tensors.empty()) effects->messages.push_back(std::move(progress));
}

void KeptResults::OnResultProgress(const ResultProgress& all_have, Effects* effects) {
  for (const RoundProgress::Tensor& tensor : all_have.tensors) {
    KeyTable::Key* const key = keys_->FindPlaced(tensor.key);
    if (key == nullptr) continue;
    for (std::shared_ptr<Exchange>* kept : {&key->last, &key->earlier}) {
      if (*kept != nullptr && (*kept)->round < tensor.next_round)
        effects->dropped.push_back(std::move(*kept));
    }
  }
}

void KeptResults::DropResults(KeyTable::Key* key, int32_t server, const FrameHeader& reply,
                              Effects* effects) {
  for (std::shared_ptr<Exchange>* kept : {&key->last, &key->earlier}) {
    if (*kept != nullptr && !(*kept)->IsStore() && (*kept)->round < reply.watermark)
      effects->dropped.push_back(std::move(*kept));
  }
  FrameHeader ends = reply;
  if (key->IsStore()) ends.round = reply.watermark;  // results have versions for rounds
  servers_->DropResults(ends, server, &effects->dropped);
}

}  // namespace byteps
