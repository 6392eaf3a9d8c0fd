/*
 * effects.h: outputs that depend on a command, named by rows of the table. All FAST (effects_fast.c).
 */
#ifndef CLIO_ENGINE_KERNEL_EFFECTS_H
#define CLIO_ENGINE_KERNEL_EFFECTS_H

#include "engine/kernel/table.h"

sys_out_fn out_futex, out_getsockopt, out_file_handle, out_getxattrat, out_lsm_attr, out_lsm_list,
    out_sendmmsg, out_recvfrom, out_syslog, out_fcntl, out_keyctl, out_quotactl, out_msgctl, out_semctl,
    out_msgrcv, out_mempolicy, out_vm_writev, out_ioctl, out_sysfs;
sys_out_fn ioctl_ifconf, ioctl_fiemap, ioctl_hwtstamp, ioctl_dedupe;

/* For event_may_cover. FAST. */
bool effects_may_cover(uint64_t from, uint64_t to);

/* An ioctl without a row of its own. */
bool slow_ioctl(const struct sys_call *c);
sys_record_fn rec_ioctl;

/* Socket options that write elsewhere or later. FAST. */
bool slow_getsockopt(const struct sys_call *c);
bool slow_setsockopt(const struct sys_call *c);
/* A message names a descriptor of ours. FAST. */
bool slow_sendmsg(const struct sys_call *c);
bool slow_sendmmsg(const struct sys_call *c);
/* There is room for descriptors, which files.h must know. FAST. */
bool slow_recvmsg(const struct sys_call *c);
bool slow_recvmmsg(const struct sys_call *c);
sys_record_fn rec_getsockopt, rec_setsockopt, rec_sendmsg, rec_sendmmsg, rec_recvmsg, rec_recvmmsg;

#endif
