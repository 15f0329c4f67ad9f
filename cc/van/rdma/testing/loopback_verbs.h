// LoopbackVerbs: a table of verbs whose one device moves bytes within this process, for tests on
// machines without RDMA, and for what no device does on command: any call can be made to fail. It
// keeps to the rules that the Van could break: posting in the wrong state, more requests than the
// queue has room for, writes outside of registered memory, and a message for which no receive is
// posted all end in an error.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cc/van/rdma/verbs.h"

namespace byteps {

// One at a time: the table's functions find it by a global name.
class LoopbackVerbs {
 public:
  LoopbackVerbs() { current() = this; }
  ~LoopbackVerbs() { current() = nullptr; }

  const verbs::Verbs* table() const { return &table_; }

  // Calls of a function ("ibv_reg_mr", "post_send") fail from now on, as its manual page says, with
  // `error`; the first `after` of them succeed.
  void Fail(const std::string& function, int error, int after = 0) {
    const Lock lock(mutex_);
    failures_[function] = {error, after};
  }
  // Everything that is sent from now on is lost: after its retries it completes with this status.
  void Disconnect(verbs::ibv_wc_status status) { lost_ = status; }
  // Everything that is sent from now on is lost, and the device goes on trying.
  void Swallow() { swallows_ = true; }

  // What the device says of itself; set before use.
  int devices = 1;
  int max_qp_wr = 4096;
  int max_cqe = 8192;
  uint32_t max_msg_sz = 1 << 30;
  int port_state = verbs::IBV_PORT_ACTIVE;
  int milliseconds_for_a_pair = 0;  // that ibv_create_qp takes
  bool moves_payloads = true;       // false: only what is small arrives, as if by hardware

  // Objects that have been made and not been destroyed.
  int objects() const { return objects_; }
  uint64_t registered_bytes() {
    const Lock lock(mutex_);
    uint64_t bytes = 0;
    for (const verbs::ibv_mr* region : regions_) bytes += region->length;
    return bytes;
  }
  // Messages that found no receive, and requests beyond the queue's room.
  int violations() const { return violations_; }
  int largest_message() const { return largest_message_; }
  // Messages of which a receiver was told.
  int reported() const { return reported_; }

 private:
  struct Queue {
    verbs::ibv_cq base{};
    std::deque<verbs::ibv_wc> entries;
    size_t room = 0;
    bool armed = false;
  };
  struct Channel {
    verbs::ibv_comp_channel base{};
    std::deque<verbs::ibv_cq*> events;
  };
  struct Pair {
    verbs::ibv_qp base{};
    verbs::ibv_qp_cap cap{};
    verbs::ibv_qp_state state = verbs::IBV_QPS_RESET;
    uint32_t peer = 0;
    std::deque<verbs::ibv_recv_wr> receives;
    std::deque<verbs::ibv_sge> receive_pieces;
  };
  struct Failure {
    int error = 0;
    int after = 0;
  };
  using Lock = std::lock_guard<std::mutex>;

  static LoopbackVerbs*& current() {
    static LoopbackVerbs* verbs = nullptr;
    return verbs;
  }
  // Whether `function` is to fail; sets errno.
  static bool Fails(const char* function) {
    LoopbackVerbs& self = *current();
    const Lock lock(self.mutex_);
    const auto it = self.failures_.find(function);
    if (it == self.failures_.end() || it->second.after-- > 0) return false;
    errno = it->second.error;
    return true;
  }
  template <typename T>
  static T* Made(T* object) {
    ++current()->objects_;
    return object;
  }
  template <typename T>
  static int Destroyed(T* object) {
    --current()->objects_;
    delete object;
    return 0;
  }

  static verbs::ibv_device** GetDeviceList(int* count) {
    if (Fails("ibv_get_device_list")) return nullptr;
    *count = current()->devices;
    auto** const list = new verbs::ibv_device*[*count + 1]();
    std::fill(list, list + *count, reinterpret_cast<verbs::ibv_device*>(current()));
    return list;
  }
  static void FreeDeviceList(verbs::ibv_device** list) { delete[] list; }
  static verbs::ibv_context* OpenDevice(verbs::ibv_device*) {
    if (Fails("ibv_open_device")) return nullptr;
    auto* const context = Made(new verbs::ibv_context{});
    context->cmd_fd = context->async_fd = -1;
    return context;
  }
  static int QueryDevice(verbs::ibv_context*, verbs::ibv_device_attr* attributes) {
    if (Fails("ibv_query_device")) return errno;
    *attributes = {};
    attributes->max_qp_wr = current()->max_qp_wr;
    attributes->max_cqe = current()->max_cqe;
    attributes->phys_port_cnt = 1;
    return 0;
  }
  static int QueryPort(verbs::ibv_context*, uint8_t, verbs::ibv_port_attr* attributes) {
    if (Fails("ibv_query_port")) return errno;
    *attributes = {};
    attributes->state = current()->port_state;
    attributes->active_mtu = verbs::IBV_MTU_4096;
    attributes->gid_tbl_len = 1;
    attributes->max_msg_sz = current()->max_msg_sz;
    attributes->link_layer = verbs::IBV_LINK_LAYER_ETHERNET;
    return 0;
  }
  static int QueryGid(verbs::ibv_context*, uint8_t, int, verbs::ibv_gid* gid) {
    static constexpr uint8_t kGid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1};
    std::memcpy(gid->raw, kGid, sizeof(kGid));
    return 0;
  }
  static verbs::ibv_mr* RegMr(verbs::ibv_pd*, void* address, size_t bytes, int access) {
    if (Fails("ibv_reg_mr")) return nullptr;
    auto* const mr = Made(new verbs::ibv_mr{});
    mr->addr = address;
    mr->length = bytes;
    const Lock lock(current()->mutex_);
    mr->lkey = ++current()->last_key_;
    if ((access & verbs::IBV_ACCESS_REMOTE_WRITE) != 0) mr->rkey = mr->lkey;
    current()->regions_.insert(mr);
    return mr;
  }
  static int DeregMr(verbs::ibv_mr* mr) {
    {
      const Lock lock(current()->mutex_);
      current()->regions_.erase(mr);
    }
    return Destroyed(mr);
  }
  static verbs::ibv_comp_channel* CreateCompChannel(verbs::ibv_context* context) {
    if (Fails("ibv_create_comp_channel")) return nullptr;
    auto* const channel = Made(new Channel);
    channel->base = {context, eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC), 0};
    return &channel->base;
  }
  static int DestroyCompChannel(verbs::ibv_comp_channel* channel) {
    close(channel->fd);
    return Destroyed(reinterpret_cast<Channel*>(channel));
  }
  static verbs::ibv_cq* CreateCq(verbs::ibv_context* context, int entries, void*,
                                 verbs::ibv_comp_channel* channel, int) {
    if (Fails("ibv_create_cq")) return nullptr;
    auto* const queue = Made(new Queue);
    queue->base.context = context;
    queue->base.channel = channel;
    queue->room = entries;
    return &queue->base;
  }
  static int DestroyCq(verbs::ibv_cq* cq) { return Destroyed(reinterpret_cast<Queue*>(cq)); }
  static int GetCqEvent(verbs::ibv_comp_channel* channel, verbs::ibv_cq** cq, void**) {
    uint64_t value = 0;
    if (read(channel->fd, &value, sizeof(value)) != sizeof(value)) return -1;
    const Lock lock(current()->mutex_);
    auto& events = reinterpret_cast<Channel*>(channel)->events;
    *cq = events.front();
    events.pop_front();
    return 0;
  }
  static int ReqNotifyCq(verbs::ibv_cq* cq, int) {
    const Lock lock(current()->mutex_);
    reinterpret_cast<Queue*>(cq)->armed = true;
    return 0;
  }
  static int PollCq(verbs::ibv_cq* cq, int count, verbs::ibv_wc* completions) {
    if (Fails("poll_cq")) return -1;
    const Lock lock(current()->mutex_);
    auto& entries = reinterpret_cast<Queue*>(cq)->entries;
    const int found = std::min<int>(count, static_cast<int>(entries.size()));
    for (int i = 0; i < found; ++i) {
      completions[i] = entries.front();
      entries.pop_front();
    }
    return found;
  }
  static verbs::ibv_qp* CreateQp(verbs::ibv_pd*, verbs::ibv_qp_init_attr* attributes) {
    if (Fails("ibv_create_qp")) return nullptr;
    usleep(current()->milliseconds_for_a_pair * 1000);
    auto* const pair = Made(new Pair);
    const Lock lock(current()->mutex_);
    pair->cap = attributes->cap;
    pair->base.send_cq = attributes->send_cq;
    pair->base.recv_cq = attributes->recv_cq;
    pair->base.qp_num = ++current()->last_key_;
    current()->pairs_[pair->base.qp_num] = pair;
    return &pair->base;
  }
  static int ModifyQp(verbs::ibv_qp* qp, verbs::ibv_qp_attr* attributes, int) {
    if (Fails("ibv_modify_qp")) return errno;
    const Lock lock(current()->mutex_);
    auto* const pair = reinterpret_cast<Pair*>(qp);
    pair->state = attributes->qp_state;
    if (pair->state == verbs::IBV_QPS_RTR) pair->peer = attributes->dest_qp_num;
    return 0;
  }
  static int DestroyQp(verbs::ibv_qp* qp) {
    {
      const Lock lock(current()->mutex_);
      current()->pairs_.erase(qp->qp_num);
    }
    return Destroyed(reinterpret_cast<Pair*>(qp));
  }
  static int PostRecv(verbs::ibv_qp* qp, verbs::ibv_recv_wr* request, verbs::ibv_recv_wr**) {
    if (Fails("post_recv")) return errno;
    const Lock lock(current()->mutex_);
    auto* const pair = reinterpret_cast<Pair*>(qp);
    if (pair->state == verbs::IBV_QPS_RESET) return EINVAL;
    if (pair->receives.size() == pair->cap.max_recv_wr) {
      ++current()->violations_;
      return ENOMEM;
    }
    pair->receives.push_back(*request);
    pair->receive_pieces.push_back(*request->sg_list);
    return 0;
  }
  static int PostSend(verbs::ibv_qp* qp, verbs::ibv_send_wr* request, verbs::ibv_send_wr**) {
    if (Fails("post_send")) return errno;
    const Lock lock(current()->mutex_);
    auto* const pair = reinterpret_cast<Pair*>(qp);
    if (pair->state != verbs::IBV_QPS_RTS) return EINVAL;
    for (; request != nullptr; request = request->next) {
      if (current()->swallows_) continue;
      verbs::ibv_wc done{};
      done.wr_id = request->wr_id;
      done.opcode =
          request->opcode == verbs::IBV_WR_SEND ? verbs::IBV_WC_SEND : verbs::IBV_WC_RDMA_WRITE;
      done.status = current()->Deliver(*pair, *request);
      const bool reported = (request->send_flags & verbs::IBV_SEND_SIGNALED) != 0;
      if (reported || done.status != verbs::IBV_WC_SUCCESS) current()->Complete(qp->send_cq, done);
      if (done.status != verbs::IBV_WC_SUCCESS) current()->Break(pair);
    }
    return 0;
  }

  // With mutex_ held.
  verbs::ibv_wc_status Deliver(const Pair& from, const verbs::ibv_send_wr& request) {
    if (from.state == verbs::IBV_QPS_ERR) return verbs::IBV_WC_WR_FLUSH_ERR;
    if (lost_ != verbs::IBV_WC_SUCCESS) return lost_;
    const auto it = pairs_.find(from.peer);
    if (it == pairs_.end()) return verbs::IBV_WC_RETRY_EXC_ERR;
    Pair& to = *it->second;
    const bool uses_receive = request.opcode != verbs::IBV_WR_RDMA_WRITE;
    if (uses_receive && to.receives.empty()) {
      ++violations_;
      return verbs::IBV_WC_RETRY_EXC_ERR;
    }
    uint32_t bytes = 0;
    for (int i = 0; i < request.num_sge; ++i) {
      const verbs::ibv_sge& piece = request.sg_list[i];
      if (!IsRegistered(piece)) ++violations_;
      bytes += piece.length;
    }
    largest_message_ = std::max<int>(largest_message_, static_cast<int>(bytes));
    uint64_t place = request.remote_addr;
    if (request.opcode == verbs::IBV_WR_SEND) {
      place = to.receive_pieces.front().addr;
    } else if (!MayWrite(place, bytes, request.rkey)) {
      return verbs::IBV_WC_REM_ACCESS_ERR;
    }
    for (int i = 0; i < request.num_sge; ++i) {
      const verbs::ibv_sge& piece = request.sg_list[i];
      if (moves_payloads || piece.length <= 4096) {
        std::memcpy(reinterpret_cast<void*>(place), reinterpret_cast<const void*>(piece.addr),
                    piece.length);
      }
      place += piece.length;
    }
    if (!uses_receive) return verbs::IBV_WC_SUCCESS;
    verbs::ibv_wc arrived{};
    arrived.wr_id = to.receives.front().wr_id;
    arrived.byte_len = bytes;
    arrived.opcode = request.opcode == verbs::IBV_WR_SEND ? verbs::IBV_WC_RECV
                                                          : verbs::IBV_WC_RECV_RDMA_WITH_IMM;
    arrived.imm_data = request.imm_data;
    to.receives.pop_front();
    to.receive_pieces.pop_front();
    ++reported_;
    Complete(to.base.recv_cq, arrived);
    return verbs::IBV_WC_SUCCESS;
  }
  // As a device does: what was posted comes back.
  void Break(Pair* pair) {
    pair->state = verbs::IBV_QPS_ERR;
    for (const verbs::ibv_recv_wr& receive : pair->receives) {
      verbs::ibv_wc flushed{};
      flushed.wr_id = receive.wr_id;
      flushed.status = verbs::IBV_WC_WR_FLUSH_ERR;
      Complete(pair->base.recv_cq, flushed);
    }
    pair->receives.clear();
    pair->receive_pieces.clear();
  }
  bool IsRegistered(const verbs::ibv_sge& piece) const {
    return std::any_of(regions_.begin(), regions_.end(), [&](const verbs::ibv_mr* mr) {
      const auto begin = reinterpret_cast<uint64_t>(mr->addr);
      return mr->lkey == piece.lkey && piece.addr >= begin &&
             piece.addr + piece.length <= begin + mr->length;
    });
  }
  bool MayWrite(uint64_t address, uint64_t bytes, uint32_t key) const {
    return std::any_of(regions_.begin(), regions_.end(), [&](const verbs::ibv_mr* mr) {
      const auto begin = reinterpret_cast<uint64_t>(mr->addr);
      return mr->rkey == key && address >= begin && address + bytes <= begin + mr->length;
    });
  }
  void Complete(verbs::ibv_cq* cq, const verbs::ibv_wc& completion) {
    auto* const queue = reinterpret_cast<Queue*>(cq);
    queue->entries.push_back(completion);
    if (queue->entries.size() > queue->room) ++violations_;
    if (!queue->armed) return;
    queue->armed = false;
    reinterpret_cast<Channel*>(cq->channel)->events.push_back(cq);
    const uint64_t one = 1;
    if (write(cq->channel->fd, &one, sizeof(one)) < 0) ++violations_;
  }

  static verbs::Verbs MakeTable() {
    verbs::Verbs table{};
    table.ibv_fork_init = [] { return 0; };
    table.ibv_get_device_list = GetDeviceList;
    table.ibv_free_device_list = FreeDeviceList;
    table.ibv_get_device_name = [](verbs::ibv_device*) { return "loopback0"; };
    table.ibv_open_device = OpenDevice;
    table.ibv_close_device = [](verbs::ibv_context* context) { return Destroyed(context); };
    table.ibv_query_device = QueryDevice;
    table.ibv_query_port = QueryPort;
    table.ibv_query_gid = QueryGid;
    table.ibv_alloc_pd = [](verbs::ibv_context* context) {
      return Fails("ibv_alloc_pd") ? nullptr : Made(new verbs::ibv_pd{context, 0});
    };
    table.ibv_dealloc_pd = [](verbs::ibv_pd* pd) { return Destroyed(pd); };
    table.ibv_reg_mr = RegMr;
    table.ibv_dereg_mr = DeregMr;
    table.ibv_create_comp_channel = CreateCompChannel;
    table.ibv_destroy_comp_channel = DestroyCompChannel;
    table.ibv_create_cq = CreateCq;
    table.ibv_destroy_cq = DestroyCq;
    table.ibv_get_cq_event = GetCqEvent;
    table.ibv_ack_cq_events = [](verbs::ibv_cq*, unsigned) {};
    table.ibv_create_qp = CreateQp;
    table.ibv_modify_qp = ModifyQp;
    table.ibv_destroy_qp = DestroyQp;
    table.ibv_wc_status_str = [](verbs::ibv_wc_status status) {
      return status == verbs::IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "failed";
    };
    table.poll_cq = PollCq;
    table.req_notify_cq = ReqNotifyCq;
    table.post_send = PostSend;
    table.post_recv = PostRecv;
    return table;
  }

  const verbs::Verbs table_ = MakeTable();
  std::atomic<int> objects_{0};
  std::atomic<int> violations_{0};
  std::atomic<int> largest_message_{0};
  std::atomic<int> reported_{0};
  std::atomic<verbs::ibv_wc_status> lost_{verbs::IBV_WC_SUCCESS};
  std::atomic<bool> swallows_{false};
  std::mutex mutex_;  // guards all below, and the queues
  std::map<std::string, Failure> failures_;
  uint32_t last_key_ = 0;
  std::map<uint32_t, Pair*> pairs_;
  std::set<verbs::ibv_mr*> regions_;
};

}  // namespace byteps
