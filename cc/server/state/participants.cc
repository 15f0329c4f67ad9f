#include "cc/server/state/participants.h"

namespace byteps {

Participants ParticipantsOf(const TableEntry& entry, uint32_t part, const HostMap& hosts,
                            bool in_rank_order) {
  Participants participants;
  participants.members = Members::Of(entry.tensor.name);
  participants.num_workers = participants.members.Count(hosts.num_workers());
  participants.contributions = participants.num_workers;
  participants.root = entry.tensor.root_rank;
  if (entry.tensor.per_host) {
    participants.contributions = hosts.num_hosts();
    participants.root = hosts.OwnerOn(hosts.HostOf(entry.tensor.root_rank), entry.key, part);
  }
  // By host where hosts contribute: who speaks for a host depends on how a tensor is cut.
  for (int32_t i = 0; in_rank_order && i < participants.contributions; ++i)
    participants.order.push_back(entry.tensor.per_host ? hosts.OwnerOn(i, entry.key, part)
                                                       : participants.members.RankAt(i));
  return participants;
}

}  // namespace byteps
