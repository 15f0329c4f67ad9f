// What the engine uses of libibverbs, opened at run time: the build needs no RDMA headers, and one
// library works on machines with and without rdma-core.
//
// The structures below are the library's binary interface (version 1, unchanged since 2006 but for
// what was appended), under the library's own names and only as far as the engine reads or fills
// them; tests/rdma/verbs_layout.cc compares them with the library's header. All calls go through a
// table of functions, so that tests can have any of them fail.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cc/base/status.h"

namespace byteps::verbs {

struct ibv_device;  // opaque

enum ibv_mtu : int { IBV_MTU_256 = 1, IBV_MTU_1024 = 3, IBV_MTU_4096 = 5 };
enum ibv_port_state : int { IBV_PORT_DOWN = 1, IBV_PORT_ACTIVE = 4 };
enum ibv_qp_state : int { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR = 6 };
enum ibv_qp_type : int { IBV_QPT_RC = 2 };
enum ibv_wr_opcode : int { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND };
enum ibv_wc_opcode : int {
  IBV_WC_SEND = 0,
  IBV_WC_RDMA_WRITE = 1,
  IBV_WC_RECV = 128,
  IBV_WC_RECV_RDMA_WITH_IMM = 129,
};
enum ibv_wc_status : int {
  IBV_WC_SUCCESS = 0,
  IBV_WC_WR_FLUSH_ERR = 5,
  IBV_WC_REM_ACCESS_ERR = 10,
  IBV_WC_RETRY_EXC_ERR = 12,
};
inline constexpr int IBV_ACCESS_LOCAL_WRITE = 1;
inline constexpr int IBV_ACCESS_REMOTE_WRITE = 2;
inline constexpr unsigned IBV_SEND_SIGNALED = 2;
inline constexpr uint8_t IBV_LINK_LAYER_ETHERNET = 2;
enum ibv_qp_attr_mask : int {
  IBV_QP_STATE = 1 << 0,
  IBV_QP_ACCESS_FLAGS = 1 << 3,
  IBV_QP_PKEY_INDEX = 1 << 4,
  IBV_QP_PORT = 1 << 5,
  IBV_QP_AV = 1 << 7,
  IBV_QP_PATH_MTU = 1 << 8,
  IBV_QP_TIMEOUT = 1 << 9,
  IBV_QP_RETRY_CNT = 1 << 10,
  IBV_QP_RNR_RETRY = 1 << 11,
  IBV_QP_RQ_PSN = 1 << 12,
  IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
  IBV_QP_MIN_RNR_TIMER = 1 << 15,
  IBV_QP_SQ_PSN = 1 << 16,
  IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
  IBV_QP_DEST_QPN = 1 << 20,
};

union ibv_gid {
  uint8_t raw[16];
  uint64_t words[2];  // for the alignment
};

struct ibv_device_attr {
  char fw_ver[64];
  uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
  uint32_t vendor_id, vendor_part_id, hw_ver;
  int max_qp, max_qp_wr;
  unsigned device_cap_flags;
  int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
  int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
  int atomic_cap, max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp;
  int max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach;
  int max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
  uint16_t max_pkeys;
  uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct ibv_port_attr {
  int state;
  int max_mtu, active_mtu;
  int gid_tbl_len;
  uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
  uint16_t pkey_tbl_len, lid, sm_lid;
  uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply;
  uint8_t active_width, active_speed, phys_state, link_layer, flags;
  uint16_t port_cap_flags2;
};

struct ibv_context;
struct ibv_cq;
struct ibv_qp;
struct ibv_send_wr;
struct ibv_recv_wr;
struct ibv_wc;

// The functions that libibverbs' header calls through the device's context.
struct ibv_context_ops {
  void* before_poll_cq[11];
  int (*poll_cq)(ibv_cq*, int, ibv_wc*);
  int (*req_notify_cq)(ibv_cq*, int);
  void* before_post_send[12];
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
  void* after_post_recv[5];
};

struct ibv_context {
  ibv_device* device;
  ibv_context_ops ops;
  int cmd_fd;
  int async_fd;
  // More follows.
};

struct ibv_pd {
  ibv_context* context;
  uint32_t handle;
};

struct ibv_mr {
  ibv_context* context;
  ibv_pd* pd;
  void* addr;
  size_t length;
  uint32_t handle, lkey, rkey;
};

struct ibv_comp_channel {
  ibv_context* context;
  int fd;
  int refcnt;
};

struct ibv_cq {
  ibv_context* context;
  ibv_comp_channel* channel;
  void* cq_context;
  // More follows.
};

struct ibv_qp {
  ibv_context* context;
  void* qp_context;
  ibv_pd* pd;
  ibv_cq *send_cq, *recv_cq;
  void* srq;
  uint32_t handle;
  uint32_t qp_num;
  // More follows.
};

struct ibv_sge {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};

struct ibv_send_wr {
  uint64_t wr_id;
  ibv_send_wr* next;
  ibv_sge* sg_list;
  int num_sge;
  ibv_wr_opcode opcode;
  unsigned send_flags;
  uint32_t imm_data;     // network byte order
  uint64_t remote_addr;  // of a write
  uint32_t rkey;
  uint32_t reserved;
  uint64_t other_kinds[9];  // of requests
};

struct ibv_recv_wr {
  uint64_t wr_id;
  ibv_recv_wr* next;
  ibv_sge* sg_list;
  int num_sge;
};

struct ibv_wc {
  uint64_t wr_id;
  ibv_wc_status status;
  ibv_wc_opcode opcode;  // says nothing where `status` is an error
  uint32_t vendor_err;
  uint32_t byte_len;
  uint32_t imm_data;  // network byte order
  uint32_t qp_num, src_qp;
  unsigned wc_flags;
  uint16_t pkey_index, slid;
  uint8_t sl, dlid_path_bits;
};

struct ibv_qp_cap {
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_init_attr {
  void* qp_context;
  ibv_cq *send_cq, *recv_cq;
  void* srq;
  ibv_qp_cap cap;
  ibv_qp_type qp_type;
  int sq_sig_all;
};

struct ibv_global_route {
  ibv_gid dgid;
  uint32_t flow_label;
  uint8_t sgid_index, hop_limit, traffic_class;
};

struct ibv_ah_attr {
  ibv_global_route grh;
  uint16_t dlid;
  uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_qp_attr {
  ibv_qp_state qp_state, cur_qp_state;
  int path_mtu;
  int path_mig_state;
  uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
  unsigned qp_access_flags;
  ibv_qp_cap cap;
  ibv_ah_attr ah_attr, alt_ah_attr;
  uint16_t pkey_index, alt_pkey_index;
  uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic;
  uint8_t min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
  uint32_t rate_limit;
};

// As in ibverbs' manual pages: 0, errno's value, or null with errno set.
struct Verbs {
  int (*ibv_fork_init)();
  ibv_device** (*ibv_get_device_list)(int* count);
  void (*ibv_free_device_list)(ibv_device** list);
  const char* (*ibv_get_device_name)(ibv_device* device);
  ibv_context* (*ibv_open_device)(ibv_device* device);
  int (*ibv_close_device)(ibv_context* context);
  int (*ibv_query_device)(ibv_context* context, ibv_device_attr* attributes);
  int (*ibv_query_port)(ibv_context* context, uint8_t port, ibv_port_attr* attributes);
  int (*ibv_query_gid)(ibv_context* context, uint8_t port, int index, ibv_gid* gid);
  ibv_pd* (*ibv_alloc_pd)(ibv_context* context);
  int (*ibv_dealloc_pd)(ibv_pd* pd);
  ibv_mr* (*ibv_reg_mr)(ibv_pd* pd, void* address, size_t bytes, int access);
  int (*ibv_dereg_mr)(ibv_mr* mr);
  ibv_comp_channel* (*ibv_create_comp_channel)(ibv_context* context);
  int (*ibv_destroy_comp_channel)(ibv_comp_channel* channel);
  ibv_cq* (*ibv_create_cq)(ibv_context* context, int entries, void* cq_context,
                           ibv_comp_channel* channel, int vector);
  int (*ibv_destroy_cq)(ibv_cq* cq);
  int (*ibv_get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
  void (*ibv_ack_cq_events)(ibv_cq* cq, unsigned count);
  ibv_qp* (*ibv_create_qp)(ibv_pd* pd, ibv_qp_init_attr* attributes);
  int (*ibv_modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
  int (*ibv_destroy_qp)(ibv_qp* qp);
  const char* (*ibv_wc_status_str)(ibv_wc_status status);
  // The library's header has these as inline functions.
  int (*poll_cq)(ibv_cq* cq, int count, ibv_wc* completions);
  int (*req_notify_cq)(ibv_cq* cq, int solicited_only);
  int (*post_send)(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad);
  int (*post_recv)(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad);
};

// The system's, the same for the whole process. FAILED_PRECONDITION, with what to install, where
// the library is missing.
Status SystemVerbs(const Verbs** verbs);

// For tests of whole jobs: what SystemVerbs gives from now on; null: the library's again.
void ReplaceSystemVerbs(const Verbs* verbs);

}  // namespace byteps::verbs
