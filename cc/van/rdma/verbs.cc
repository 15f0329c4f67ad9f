#include "cc/van/rdma/verbs.h"

#include <atomic>

#include "cc/base/dynamic_library.h"

namespace byteps::verbs {
namespace {

int PollCq(ibv_cq* cq, int count, ibv_wc* completions) {
  return cq->context->ops.poll_cq(cq, count, completions);
}
int ReqNotifyCq(ibv_cq* cq, int solicited_only) {
  return cq->context->ops.req_notify_cq(cq, solicited_only);
}
int PostSend(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) {
  return qp->context->ops.post_send(qp, request, bad);
}
int PostRecv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) {
  return qp->context->ops.post_recv(qp, request, bad);
}

Status Load(Verbs* table) {
  DynamicLibrary library;
  const Status opened = library.Open({"libibverbs.so.1"});
  if (!opened.ok()) {
    return FailedPrecondition(
        "RDMA needs rdma-core, which is not installed (" + opened.message() +
        "); on Debian and Ubuntu: apt-get install libibverbs1 ibverbs-providers");
  }
#define BYTEPS_FIND(name) BYTEPS_RETURN_IF_ERROR(library.Find(#name, &table->name))
  BYTEPS_FIND(ibv_fork_init);
  BYTEPS_FIND(ibv_get_device_list);
  BYTEPS_FIND(ibv_free_device_list);
  BYTEPS_FIND(ibv_get_device_name);
  BYTEPS_FIND(ibv_open_device);
  BYTEPS_FIND(ibv_close_device);
  BYTEPS_FIND(ibv_query_device);
  BYTEPS_FIND(ibv_query_port);
  BYTEPS_FIND(ibv_query_gid);
  BYTEPS_FIND(ibv_alloc_pd);
  BYTEPS_FIND(ibv_dealloc_pd);
  BYTEPS_FIND(ibv_reg_mr);
  BYTEPS_FIND(ibv_dereg_mr);
  BYTEPS_FIND(ibv_create_comp_channel);
  BYTEPS_FIND(ibv_destroy_comp_channel);
  BYTEPS_FIND(ibv_create_cq);
  BYTEPS_FIND(ibv_destroy_cq);
  BYTEPS_FIND(ibv_get_cq_event);
  BYTEPS_FIND(ibv_ack_cq_events);
  BYTEPS_FIND(ibv_create_qp);
  BYTEPS_FIND(ibv_modify_qp);
  BYTEPS_FIND(ibv_destroy_qp);
  BYTEPS_FIND(ibv_wc_status_str);
#undef BYTEPS_FIND
  table->poll_cq = PollCq;
  table->req_notify_cq = ReqNotifyCq;
  table->post_send = PostSend;
  table->post_recv = PostRecv;
  // A child may be forked while memory is registered. Recent kernels need nothing for that, and
  // then this does nothing; where it fails, so does fork(), later and seldom.
  table->ibv_fork_init();
  return OkStatus();
}

struct System {
  Verbs table{};
  Status status = Load(&table);
};

std::atomic<const Verbs*> replacement{nullptr};

}  // namespace

void ReplaceSystemVerbs(const Verbs* verbs) { replacement = verbs; }

Status SystemVerbs(const Verbs** verbs) {
  *verbs = replacement;
  if (*verbs != nullptr) return OkStatus();
  static const System* const system = new System;  // the library's own threads may outlive statics
  *verbs = &system->table;
  return system->status;
}

}  // namespace byteps::verbs
