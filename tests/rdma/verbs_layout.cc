// Compares the engine's declarations of libibverbs with the library's own header; to compile it is
// the test. `test_vm.py` does, with the header of the virtual machine's packages.
#include "cc/van/rdma/verbs.h"

// The library's macro would turn our member of that name into a function of its own.
#include <infiniband/verbs.h>

#include <cstddef>

namespace ours = byteps::verbs;

#define SAME_SIZE(type) static_assert(sizeof(ours::type) == sizeof(::type), #type)
#define SAME_PLACE(type, field)                                                  \
  static_assert(offsetof(ours::type, field) == offsetof(struct ::type, field) && \
                    sizeof(ours::type::field) == sizeof(::type::field),          \
                #type "." #field)
#define SAME_VALUE(name) \
  static_assert(static_cast<int>(ours::name) == static_cast<int>(::name), #name)

SAME_SIZE(ibv_gid);
SAME_SIZE(ibv_device_attr);
SAME_SIZE(ibv_sge);
SAME_SIZE(ibv_send_wr);
SAME_SIZE(ibv_recv_wr);
SAME_SIZE(ibv_wc);
SAME_SIZE(ibv_qp_cap);
SAME_SIZE(ibv_qp_init_attr);
SAME_SIZE(ibv_global_route);
SAME_SIZE(ibv_ah_attr);
SAME_SIZE(ibv_qp_attr);
SAME_SIZE(ibv_mr);
SAME_SIZE(ibv_pd);
SAME_SIZE(ibv_context_ops);
SAME_SIZE(ibv_comp_channel);
SAME_SIZE(ibv_port_attr);

SAME_PLACE(ibv_device_attr, max_qp_wr);
SAME_PLACE(ibv_device_attr, max_cqe);
SAME_PLACE(ibv_device_attr, phys_port_cnt);
SAME_PLACE(ibv_port_attr, state);
SAME_PLACE(ibv_port_attr, active_mtu);
SAME_PLACE(ibv_port_attr, gid_tbl_len);
SAME_PLACE(ibv_port_attr, max_msg_sz);
SAME_PLACE(ibv_port_attr, lid);
SAME_PLACE(ibv_port_attr, link_layer);
SAME_PLACE(ibv_port_attr, port_cap_flags2);
SAME_PLACE(ibv_context, device);
SAME_PLACE(ibv_context, ops);
SAME_PLACE(ibv_context, cmd_fd);
SAME_PLACE(ibv_context, async_fd);
SAME_PLACE(ibv_context_ops, poll_cq);
SAME_PLACE(ibv_context_ops, req_notify_cq);
SAME_PLACE(ibv_context_ops, post_send);
SAME_PLACE(ibv_context_ops, post_recv);
SAME_PLACE(ibv_mr, lkey);
SAME_PLACE(ibv_mr, rkey);
SAME_PLACE(ibv_comp_channel, fd);
SAME_PLACE(ibv_cq, context);
SAME_PLACE(ibv_cq, channel);
SAME_PLACE(ibv_cq, cq_context);
SAME_PLACE(ibv_qp, context);
SAME_PLACE(ibv_qp, qp_num);
SAME_PLACE(ibv_sge, addr);
SAME_PLACE(ibv_sge, length);
SAME_PLACE(ibv_sge, lkey);
SAME_PLACE(ibv_send_wr, wr_id);
SAME_PLACE(ibv_send_wr, next);
SAME_PLACE(ibv_send_wr, sg_list);
SAME_PLACE(ibv_send_wr, num_sge);
SAME_PLACE(ibv_send_wr, opcode);
SAME_PLACE(ibv_send_wr, send_flags);
SAME_PLACE(ibv_send_wr, imm_data);
SAME_PLACE(ibv_recv_wr, wr_id);
SAME_PLACE(ibv_recv_wr, next);
SAME_PLACE(ibv_recv_wr, sg_list);
SAME_PLACE(ibv_recv_wr, num_sge);
SAME_PLACE(ibv_wc, wr_id);
SAME_PLACE(ibv_wc, status);
SAME_PLACE(ibv_wc, opcode);
SAME_PLACE(ibv_wc, vendor_err);
SAME_PLACE(ibv_wc, byte_len);
SAME_PLACE(ibv_wc, imm_data);
SAME_PLACE(ibv_wc, wc_flags);
SAME_PLACE(ibv_wc, dlid_path_bits);
SAME_PLACE(ibv_qp_init_attr, send_cq);
SAME_PLACE(ibv_qp_init_attr, recv_cq);
SAME_PLACE(ibv_qp_init_attr, srq);
SAME_PLACE(ibv_qp_init_attr, cap);
SAME_PLACE(ibv_qp_init_attr, qp_type);
SAME_PLACE(ibv_qp_init_attr, sq_sig_all);
SAME_PLACE(ibv_global_route, dgid);
SAME_PLACE(ibv_global_route, flow_label);
SAME_PLACE(ibv_global_route, sgid_index);
SAME_PLACE(ibv_global_route, hop_limit);
SAME_PLACE(ibv_global_route, traffic_class);
SAME_PLACE(ibv_ah_attr, grh);
SAME_PLACE(ibv_ah_attr, dlid);
SAME_PLACE(ibv_ah_attr, sl);
SAME_PLACE(ibv_ah_attr, is_global);
SAME_PLACE(ibv_ah_attr, port_num);
SAME_PLACE(ibv_qp_attr, qp_state);
SAME_PLACE(ibv_qp_attr, path_mtu);
SAME_PLACE(ibv_qp_attr, rq_psn);
SAME_PLACE(ibv_qp_attr, sq_psn);
SAME_PLACE(ibv_qp_attr, dest_qp_num);
SAME_PLACE(ibv_qp_attr, qp_access_flags);
SAME_PLACE(ibv_qp_attr, cap);
SAME_PLACE(ibv_qp_attr, ah_attr);
SAME_PLACE(ibv_qp_attr, pkey_index);
SAME_PLACE(ibv_qp_attr, max_rd_atomic);
SAME_PLACE(ibv_qp_attr, max_dest_rd_atomic);
SAME_PLACE(ibv_qp_attr, min_rnr_timer);
SAME_PLACE(ibv_qp_attr, port_num);
SAME_PLACE(ibv_qp_attr, timeout);
SAME_PLACE(ibv_qp_attr, retry_cnt);
SAME_PLACE(ibv_qp_attr, rnr_retry);
SAME_PLACE(ibv_qp_attr, rate_limit);
static_assert(offsetof(ours::ibv_send_wr, remote_addr) ==
              offsetof(struct ::ibv_send_wr, wr.rdma.remote_addr));
static_assert(offsetof(ours::ibv_send_wr, rkey) == offsetof(struct ::ibv_send_wr, wr.rdma.rkey));

SAME_VALUE(IBV_MTU_256);
SAME_VALUE(IBV_MTU_1024);
SAME_VALUE(IBV_MTU_4096);
SAME_VALUE(IBV_PORT_DOWN);
SAME_VALUE(IBV_PORT_ACTIVE);
SAME_VALUE(IBV_QPS_RESET);
SAME_VALUE(IBV_QPS_INIT);
SAME_VALUE(IBV_QPS_RTR);
SAME_VALUE(IBV_QPS_RTS);
SAME_VALUE(IBV_QPS_ERR);
SAME_VALUE(IBV_QPT_RC);
SAME_VALUE(IBV_WR_RDMA_WRITE);
SAME_VALUE(IBV_WR_RDMA_WRITE_WITH_IMM);
SAME_VALUE(IBV_WR_SEND);
SAME_VALUE(IBV_WC_SEND);
SAME_VALUE(IBV_WC_RDMA_WRITE);
SAME_VALUE(IBV_WC_RECV);
SAME_VALUE(IBV_WC_RECV_RDMA_WITH_IMM);
SAME_VALUE(IBV_WC_SUCCESS);
SAME_VALUE(IBV_WC_WR_FLUSH_ERR);
SAME_VALUE(IBV_WC_REM_ACCESS_ERR);
SAME_VALUE(IBV_WC_RETRY_EXC_ERR);
SAME_VALUE(IBV_ACCESS_LOCAL_WRITE);
SAME_VALUE(IBV_ACCESS_REMOTE_WRITE);
SAME_VALUE(IBV_SEND_SIGNALED);
SAME_VALUE(IBV_LINK_LAYER_ETHERNET);
SAME_VALUE(IBV_QP_STATE);
SAME_VALUE(IBV_QP_ACCESS_FLAGS);
SAME_VALUE(IBV_QP_PKEY_INDEX);
SAME_VALUE(IBV_QP_PORT);
SAME_VALUE(IBV_QP_AV);
SAME_VALUE(IBV_QP_PATH_MTU);
SAME_VALUE(IBV_QP_TIMEOUT);
SAME_VALUE(IBV_QP_RETRY_CNT);
SAME_VALUE(IBV_QP_RNR_RETRY);
SAME_VALUE(IBV_QP_RQ_PSN);
SAME_VALUE(IBV_QP_MAX_QP_RD_ATOMIC);
SAME_VALUE(IBV_QP_MIN_RNR_TIMER);
SAME_VALUE(IBV_QP_SQ_PSN);
SAME_VALUE(IBV_QP_MAX_DEST_RD_ATOMIC);
SAME_VALUE(IBV_QP_DEST_QPN);
