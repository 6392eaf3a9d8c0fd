/*
 * effects.c: the hot path of recording: performs a call and works out from its row what the kernel wrote.
 *
 * FAST: general registers only, no libc. Lengths that the kernel replaces are read before the call. Nothing
 * here trusts guest memory: every read is fault tolerant, and ranges the kernel may not have written in full
 * are cut down to what the guest can write.
 */
#include <errno.h>
#include <linux/kcmp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "engine/guest/layout.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/kernel/effects.h"
#include "engine/kernel/files.h"
#include "engine/kernel/signals.h"
#include "engine/kernel/table.h"
#include "engine/memory/space.h"

enum { IOV_LIMIT = 1024, PARTIAL_LIMIT = 1 << 20 };

/* Of socket options, what glibc's headers lack or cannot be included beside them. */
enum {
    XT_SO_SET_REPLACE = 64, /* IPT_, IP6T_ */
    ARPT_SO_SET_REPLACE = 96,
    EBT_FIRST = 128, /* ebtables: its only option to set, and the first of those to get */
    EBT_LAST = 131,
    TCP_ZEROCOPY_RECEIVE = 35,
    TCP_AO_GET_KEYS = 41,
    MPTCP_FULL_INFO = 4,
};
#ifndef SOL_MPTCP
#define SOL_MPTCP 284
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif
#ifndef SOL_RDS
#define SOL_RDS 276
#endif

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- ranges ---- */

/* Index of the first vma that ends above addr. */
static uint32_t vma_index(uint64_t addr)
{
    uint32_t low = 0, high = guest_space.count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (guest_space.vmas[middle].end <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool vma_writable(const struct vma *v)
{
    return v->prot & 2; /* PROT_WRITE */
}

/* Bytes from addr that the guest may write without a gap, at most len. */
static uint64_t writable_run(uint64_t addr, uint64_t len)
{
    uint64_t at = addr;
    for (uint32_t i = vma_index(addr); i < guest_space.count && at - addr < len; i++) {
        const struct vma *v = &guest_space.vmas[i];
        if (v->start > at || !vma_writable(v))
            break;
        at = v->end;
    }
    return min64(at - addr, len);
}

/* Pages of a file mapping beyond the end of the file cannot be read: leave them out. */
static void add_probed(struct task *t, uint64_t addr, uint64_t end)
{
    uint64_t from = addr;
    for (uint64_t page = PAGE_DOWN(addr); page < end; page += PAGE_SIZE) {
        uint64_t at = page < addr ? addr : page;
        char byte;
        if (!safe_copy(&byte, (const void *)at, 1))
            continue;
        effect_add(t, from, at - from);
        from = page + PAGE_SIZE;
    }
    if (from < end)
        effect_add(t, from, end - from);
}

void effect_add_writable(struct task *t, uint64_t addr, uint64_t len)
{
    uint64_t end = addr + len;
    if (end < addr)
        end = ~0ull;
    for (uint32_t i = vma_index(addr); i < guest_space.count; i++) {
        const struct vma *v = &guest_space.vmas[i];
        if (v->start >= end)
            break;
        if (!vma_writable(v))
            continue;
        uint64_t from = v->start < addr ? addr : v->start, to = min64(v->end, end);
        if (v->file)
            add_probed(t, from, to);
        else
            effect_add(t, from, to - from);
    }
}

/* Memory of files is left out: pages beyond the end of one cannot be set. */
bool effects_may_cover(uint64_t from, uint64_t to)
{
    for (uint32_t i = vma_index(from); from < to; i++) {
        const struct vma *v = &guest_space.vmas[i];
        if (i >= guest_space.count || v->start > from || !vma_writable(v) || v->file)
            return false;
        from = v->end;
    }
    return true;
}

/* The kernel wrote n bytes of a buffer of max, and perhaps a part of its next piece before it met a fault. */
static void add_partial(struct task *t, uint64_t addr, uint64_t n, uint64_t max)
{
    if (n < max && PAGE_DOWN(addr + n) != PAGE_DOWN(addr + max - 1)) {
        uint64_t run = writable_run(addr, max);
        if (run < max && run > n && run - n <= PARTIAL_LIMIT) {
            effect_add_writable(t, addr, run);
            return;
        }
    }
    effect_add(t, addr, n);
}

/* ---- vectors and messages ---- */

struct vector {
    struct iovec iov[IOV_LIMIT];
    uint64_t count;
};

static void vector_read(struct vector *v, uint64_t addr, uint64_t count)
{
    v->count = count > IOV_LIMIT ? 0 : count;
    if (v->count && guest_read(v->iov, addr, v->count * sizeof v->iov[0]))
        v->count = 0;
}

static void vector_add_fault(struct task *t, const struct vector *v)
{
    for (uint64_t i = 0; i < v->count; i++)
        effect_add_writable(t, (uint64_t)v->iov[i].iov_base, v->iov[i].iov_len);
}

/* Some of the vector cannot be written: a copy into it may have ended halfway, beyond what the result says.
 */
static bool vector_faulty(const struct vector *v)
{
    for (uint64_t i = 0; i < v->count; i++)
        if (writable_run((uint64_t)v->iov[i].iov_base, v->iov[i].iov_len) < v->iov[i].iov_len)
            return true;
    return false;
}

/* n bytes went into the vector. */
static void vector_add(struct task *t, const struct vector *v, uint64_t n)
{
    for (uint64_t i = 0; i < v->count; i++) {
        uint64_t max = v->iov[i].iov_len, here = min64(n, max);
        effect_add(t, (uint64_t)v->iov[i].iov_base, here);
        n -= here;
        if (here == max)
            continue;
        if (vector_faulty(v))
            vector_add_fault(t, v);
        break;
    }
}

/* The whole of a vector that the kernel may have written to beyond its result. */
void effect_add_vector(struct task *t, uint64_t addr, uint64_t count)
{
    struct vector v;
    vector_read(&v, addr, count);
    vector_add_fault(t, &v);
}

/* Everything that receiving into the message at `at` set; `before` is the header as it was, n the data bytes.
 */
static void message_add(struct task *t, uint64_t at, const struct msghdr *before, const struct vector *v,
                        uint64_t n)
{
    struct msghdr after;
    vector_add(t, v, n);
    if (guest_read(&after, at, sizeof after))
        return;
    if (before->msg_name) {
        uint32_t room = before->msg_namelen, used = after.msg_namelen;
        effect_add(t, (uint64_t)before->msg_name, used < room ? used : room);
    }
    effect_add(t, at + offsetof(struct msghdr, msg_namelen), 4);
    effect_add(t, at + offsetof(struct msghdr, msg_controllen), 8 + 4); /* and msg_flags */
    if (before->msg_control && before->msg_controllen) {
        uint64_t control = (uint64_t)before->msg_control, room = before->msg_controllen;
        uint64_t used = min64(after.msg_controllen, room);
        if (after.msg_flags & MSG_CTRUNC)
            effect_add_writable(t, control, room);
        else
            add_partial(t, control, used, room);
    }
}

static void message_add_fault(struct task *t, uint64_t at, const struct msghdr *before,
                              const struct vector *v)
{
    vector_add_fault(t, v);
    effect_add_writable(t, (uint64_t)before->msg_name, before->msg_name ? before->msg_namelen : 0);
    effect_add_writable(t, (uint64_t)before->msg_control, before->msg_control ? before->msg_controllen : 0);
    effect_add_writable(t, at, sizeof *before);
}

/* recvmmsg: headers are read one by one afterwards; only lengths the kernel replaces differ from before. */
static void messages_add(struct task *t, const struct sys_call *c, uint64_t at, uint64_t count)
{
    struct vector v;
    uint64_t received = c->result > 0 ? (uint64_t)c->result : 0;
    for (uint64_t i = 0; i < count && i <= received; i++) {
        struct mmsghdr m;
        uint64_t entry = at + i * sizeof m;
        if (guest_read(&m, entry, sizeof m))
            return;
        vector_read(&v, (uint64_t)m.msg_hdr.msg_iov, m.msg_hdr.msg_iovlen);
        if (i == received) { /* the one that failed, perhaps halfway */
            if (c->result == -EFAULT || vector_faulty(&v))
                message_add_fault(t, entry, &m.msg_hdr, &v);
            return;
        }
        /* The room for name and control data is what was asked for at most; the kernel stored what it used.
         */
        vector_add(t, &v, m.msg_len);
        effect_add(t, entry, sizeof m);
        effect_add_writable(t, (uint64_t)m.msg_hdr.msg_name,
                            m.msg_hdr.msg_name ? min64(m.msg_hdr.msg_namelen, 128) : 0);
        effect_add_writable(t, (uint64_t)m.msg_hdr.msg_control,
                            m.msg_hdr.msg_control ? m.msg_hdr.msg_controllen : 0);
    }
}

/* ---- one output ---- */

static bool happened(unsigned when, int64_t result)
{
    switch (when) {
    case ON_SUCCESS:
    case ON_MAYBE:
        return result >= 0;
    case ON_POSITIVE:
        return result > 0;
    case ON_EINTR:
        return result >= 0 || result == -EINTR;
    case ON_ONLY_EINTR:
        return result == -EINTR;
    }
    return true;
}

/* The most an output can cover, for calls that failed halfway. */
static uint64_t out_room(const struct sys_out *o, const struct sys_call *c, uint32_t before)
{
    switch (o->how) {
    case OUT_FIXED:
    case OUT_STRING:
        return o->size;
    case OUT_RESULT:
        return min64(c->args[o->len], 0x7ffff000) * o->size;
    case OUT_ARG:
        return (uint64_t)(uint32_t)c->args[o->len] * o->size;
    case OUT_VALUE:
        return before;
    case OUT_FDSETS:
        return (int32_t)c->args[0] > 0 ? ((uint32_t)c->args[0] + 63ull) / 64 * 8 : 0;
    case OUT_PAGES:
        return PAGE_UP(c->args[o->len]) / PAGE_SIZE;
    }
    return 0;
}

static void add_value_result(struct task *t, const struct sys_out *o, const struct sys_call *c,
                             uint32_t before)
{
    uint32_t after;
    uint64_t addr = c->args[o->arg], length_at = c->args[o->len];
    if (!addr || !length_at || guest_read(&after, length_at, 4))
        return;
    effect_add(t, addr, before < after ? before : after);
    effect_add(t, length_at, 4);
}

static void add_string(struct task *t, uint64_t addr, uint64_t limit)
{
    char byte;
    uint64_t n = 0;
    while (n < limit && !safe_copy(&byte, (const void *)(addr + n), 1)) {
        n++;
        if (!byte)
            break;
    }
    effect_add(t, addr, n);
}

static void add_out(struct task *t, const struct sys_out *o, const struct sys_call *c, uint32_t before)
{
    uint64_t addr = c->args[o->arg];
    if (o->how == OUT_FN) {
        if (c->result == -EFAULT || happened(o->when, c->result))
            o->fn(t, c, before);
        return;
    }
    if (!addr)
        return;
    if (c->result == -EFAULT) {
        effect_add_writable(t, addr, out_room(o, c, before));
        if (o->how == OUT_VALUE)
            effect_add_writable(t, c->args[o->len], 4);
        return;
    }
    if (!happened(o->when, c->result))
        return;
    uint64_t room = out_room(o, c, before);
    if (o->when == ON_ALWAYS || o->when == ON_MAYBE || o->when == ON_ONLY_EINTR) {
        effect_add_writable(t, addr, room);
        return;
    }
    switch (o->how) {
    case OUT_RESULT:
        if (room)
            add_partial(t, addr, min64((uint64_t)c->result * o->size, room), room);
        break;
    case OUT_VALUE:
        add_value_result(t, o, c, before);
        break;
    case OUT_STRING:
        add_string(t, addr, room);
        break;
    case OUT_FDSETS: /* the kernel stops at the size of the descriptor table */
        if (room <= 128)
            effect_add(t, addr, room);
        else
            effect_add_writable(t, addr, room);
        break;
    default:
        effect_add(t, addr, room);
    }
}

/* ---- rows ---- */

struct befores {
    uint32_t value[SYS_OUTS];
};

static void read_befores(const struct sys_row *row, const struct sys_call *c, struct befores *b)
{
    for (int i = 0; i < SYS_OUTS && row->outs[i].how; i++) {
        const struct sys_out *o = &row->outs[i];
        b->value[i] = 0;
        if ((o->how == OUT_VALUE || o->how == OUT_FN) && o->len != NO_ARG && c->args[o->len])
            guest_read(&b->value[i], c->args[o->len], 4);
    }
}

bool sys_names_hidden(const struct sys_row *row, const struct sys_call *c)
{
    if (c->nr == SYS_mmap && (c->args[3] & MAP_ANONYMOUS))
        return false; /* the descriptor is ignored */
    if (c->nr == SYS_kcmp && (uint32_t)c->args[2] != KCMP_FILE)
        return false;
    for (unsigned bits = row->fds; bits; bits &= bits - 1)
        if (hostfd_is((int32_t)c->args[__builtin_ctz(bits)]))
            return true;
    return false;
}

/* Rows with vectors: their first output is the vector; the others follow. Not inlined: 16 KiB of stack. */
static __attribute__((noinline)) void perform_vector(struct task *t, struct sys_call *c,
                                                     const struct sys_row *row)
{
    struct vector v;
    struct msghdr before = {0};
    const struct sys_out *o = &row->outs[0];
    uint64_t at = c->args[o->arg];
    v.count = 0;
    if (o->how == OUT_IOVEC)
        vector_read(&v, at, c->args[o->len]);
    else if (o->how == OUT_MSG && !guest_read(&before, at, sizeof before))
        vector_read(&v, (uint64_t)before.msg_iov, before.msg_iovlen);
    task_syscall(t, c);
    if (c->restart)
        return;
    if (o->how == OUT_MMSG)
        messages_add(t, c, at, (uint32_t)c->args[o->len]);
    else if (c->result == -EFAULT && o->how == OUT_MSG)
        message_add_fault(t, at, &before, &v);
    else if (c->result == -EFAULT)
        vector_add_fault(t, &v);
    else if (c->result >= 0 && o->how == OUT_MSG)
        message_add(t, at, &before, &v, (uint64_t)c->result);
    else if (c->result > 0)
        vector_add(t, &v, (uint64_t)c->result);
    for (int i = 1; i < SYS_OUTS && row->outs[i].how; i++)
        add_out(t, &row->outs[i], c, 0);
}

static void perform(struct task *t, struct sys_call *c, const struct sys_row *row)
{
    struct befores b;
    read_befores(row, c, &b);
    task_syscall(t, c);
    if (c->restart)
        return;
    for (int i = 0; i < SYS_OUTS && row->outs[i].how; i++)
        add_out(t, &row->outs[i], c, b.value[i]);
}

int64_t sys_generic(struct task *t, struct sys_call *c, const struct sys_row *row)
{
    if (row->fds && sys_names_hidden(row, c))
        return c->result = -EBADF;
    if ((row->flags & ROW_NO_BYTES) && files_output((int32_t)c->args[row->to_fd]))
        return c->result = -EINVAL;
    if (row->flags & ROW_VECTOR)
        perform_vector(t, c, row);
    else
        perform(t, c, row);
    if (c->restart)
        return c->result;
    if (row->after)
        row->after(t, c);
    if ((row->flags & SYS_WRITES) && c->result >= 0)
        files_written(t, c, row);
    return c->result;
}

bool sys_record_fast(struct task *t, struct sys_call *c)
{
    if (c->nr >= sys_table_count)
        return false;
    const struct sys_row *row = &sys_table[c->nr];
    if (!row->name || (row->flags & (SYS_NOT_FAST | ROW_REFUSED)) || (row->slow && row->slow(c)))
        return false;
    if (row->flags & SYS_TEMPMASK)
        signals_note_temp_mask(t, c);
    sys_generic(t, c, row);
    t->temp_mask_set = false;
    return true;
}

unsigned sys_output_flags(const struct sys_call *c)
{
    if (c->nr >= sys_table_count || !(sys_table[c->nr].flags & SYS_WRITES) || c->result <= 0)
        return 0;
    unsigned output = files_output((int32_t)c->args[sys_table[c->nr].to_fd]);
    return output == FILE_OUT ? EVF_OUTPUT : output == FILE_ERR ? EVF_OUTERR : 0;
}

/* ---- outputs that depend on a command ---- */

enum { FUTEX_CMD = 127 };

/* Commands that change the words themselves; plain waits and wakes write nothing. */
void out_futex(struct task *t, const struct sys_call *c, uint32_t before)
{
    switch (c->args[1] & FUTEX_CMD) {
    case 5:  /* FUTEX_WAKE_OP */
    case 11: /* FUTEX_WAIT_REQUEUE_PI */
    case 12: /* FUTEX_CMP_REQUEUE_PI */
        effect_add_writable(t, c->args[4], 4);
        break;
    case 6:  /* FUTEX_LOCK_PI */
    case 7:  /* FUTEX_UNLOCK_PI */
    case 8:  /* FUTEX_TRYLOCK_PI */
    case 13: /* FUTEX_LOCK_PI2 */
        effect_add_writable(t, c->args[0], 4);
        break;
    }
}

/* The length comes back in units of the option; SO_GET_FILTER counts instructions of 8 bytes. */
void out_getsockopt(struct task *t, const struct sys_call *c, uint32_t before)
{
    uint64_t unit = c->args[1] == SOL_SOCKET && c->args[2] == SO_GET_FILTER ? 8 : 1;
    if (c->args[3])
        effect_add_writable(t, c->args[3], min64((int32_t)before < 0 ? 0 : before, 1 << 26) * unit);
    effect_add_writable(t, c->args[4], 4);
}

/* Other actions than the three that read return numbers and do not look at the buffer. */
void out_syslog(struct task *t, const struct sys_call *c, uint32_t before)
{
    enum { READ = 2, READ_CLEAR = 4 };
    if (c->result > 0 && c->args[0] >= READ && c->args[0] <= READ_CLEAR)
        add_partial(t, c->args[1], (uint64_t)c->result, c->args[2]);
    else if (c->result < 0)
        effect_add_writable(t, c->args[1], min64(c->args[2], 1 << 26));
}

/* A length that is negative is found only after the data were copied. */
void out_recvfrom(struct task *t, const struct sys_call *c, uint32_t before)
{
    if (c->result == -EINVAL && c->args[4])
        effect_add_writable(t, c->args[1], min64(c->args[2], 0x7ffff000));
}

void out_file_handle(struct task *t, const struct sys_call *c, uint32_t before)
{
    effect_add_writable(t, c->args[2], 8 + min64(before, 128));
    effect_add_writable(t, c->args[3], c->args[4] & 1 ? 8 : 4); /* AT_HANDLE_MNT_ID_UNIQUE */
}

/* struct xattr_args: value (address), size, flags */
void out_getxattrat(struct task *t, const struct sys_call *c, uint32_t before)
{
    struct {
        uint64_t value;
        uint32_t size, flags;
    } a;
    if (!guest_read(&a, c->args[4], sizeof a))
        effect_add_writable(t, a.value, a.size);
}

void out_lsm_attr(struct task *t, const struct sys_call *c, uint32_t before)
{
    if (c->result >= 0 || c->result == -E2BIG || c->result == -EFAULT)
        effect_add_writable(t, c->args[1], min64(before, 1 << 20));
    effect_add_writable(t, c->args[2], 4);
}

void out_lsm_list(struct task *t, const struct sys_call *c, uint32_t before)
{
    if (c->result >= 0 || c->result == -EFAULT)
        effect_add_writable(t, c->args[0], min64(before, 1 << 20));
    effect_add_writable(t, c->args[1], 4);
}

/* Only entries that were sent have their length set. */
void out_sendmmsg(struct task *t, const struct sys_call *c, uint32_t before)
{
    for (int64_t i = 0; i < c->result; i++)
        effect_add(t, c->args[1] + (uint64_t)i * sizeof(struct mmsghdr) + offsetof(struct mmsghdr, msg_len),
                   4);
}

struct command_row {
    uint32_t command;
    uint8_t arg;   /* pointer */
    uint8_t count; /* with NO_ARG: size bytes; else argument `count` x size bytes at most */
    uint32_t size;
};

static void by_command(struct task *t, const struct sys_call *c, uint32_t command,
                       const struct command_row *rows, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (rows[i].command == command && c->args[rows[i].arg]) {
            uint64_t n = rows[i].count == NO_ARG ? 1 : min64(c->args[rows[i].count], 1 << 24);
            effect_add_writable(t, c->args[rows[i].arg], n * rows[i].size);
        }
}
#define BY_COMMAND(t, c, command, rows) by_command(t, c, command, rows, sizeof rows / sizeof rows[0])

void out_fcntl(struct task *t, const struct sys_call *c, uint32_t before)
{
    static const struct command_row rows[] = {
        {5, 2, NO_ARG, 32},   /* F_GETLK: struct flock */
        {36, 2, NO_ARG, 32},  /* F_OFD_GETLK */
        {16, 2, NO_ARG, 8},   /* F_GETOWN_EX */
        {17, 2, NO_ARG, 8},   /* F_GETOWNER_UIDS */
        {1035, 2, NO_ARG, 8}, /* F_GET_RW_HINT */
        {1037, 2, NO_ARG, 8}, /* F_GET_FILE_RW_HINT */
        {1039, 2, NO_ARG, 8}, /* F_GETDELEG */
    };
    BY_COMMAND(t, c, (uint32_t)c->args[1], rows);
}

void out_keyctl(struct task *t, const struct sys_call *c, uint32_t before)
{
    static const struct command_row rows[] = {
        {6, 2, 3, 1},          /* KEYCTL_DESCRIBE */
        {11, 2, 3, 1},         /* KEYCTL_READ */
        {17, 2, 3, 1},         /* KEYCTL_GET_SECURITY */
        {23, 2, 3, 1},         /* KEYCTL_DH_COMPUTE */
        {24, 4, NO_ARG, 64},   /* KEYCTL_PKEY_QUERY */
        {25, 4, NO_ARG, 4096}, /* KEYCTL_PKEY_ENCRYPT */
        {26, 4, NO_ARG, 4096}, /* KEYCTL_PKEY_DECRYPT */
        {27, 4, NO_ARG, 4096}, /* KEYCTL_PKEY_SIGN */
        {31, 1, 2, 1},         /* KEYCTL_CAPABILITIES */
    };
    BY_COMMAND(t, c, (uint32_t)c->args[0], rows);
}

/* quotactl(cmd, special, id, addr) and quotactl_fd(fd, cmd, id, addr): the largest structure is 248 bytes. */
void out_quotactl(struct task *t, const struct sys_call *c, uint32_t before)
{
    effect_add_writable(t, c->args[3], 256);
}

void out_msgctl(struct task *t, const struct sys_call *c, uint32_t before)
{
    effect_add_writable(t, c->args[2], 120); /* struct msqid64_ds, the largest */
}

void out_semctl(struct task *t, const struct sys_call *c, uint32_t before)
{
    enum { GETALL = 13, IPC_STAT = 2, IPC_INFO = 3, SEM_STAT = 18, SEM_INFO, SEM_STAT_ANY };
    switch (c->args[2] & ~0x100ull) {
    case IPC_STAT:
    case IPC_INFO:
    case SEM_STAT:
    case SEM_INFO:
    case SEM_STAT_ANY:
        effect_add_writable(t, c->args[3], 104); /* struct semid64_ds, the largest */
        break;
    case GETALL: {
        uint64_t ds[13]; /* struct semid64_ds; sem_nsems is the eleventh word */
        if (!raw4(SYS_semctl, c->args[0], 0, IPC_STAT, ds))
            effect_add_writable(t, c->args[3], 2 * min64(ds[10], 32000));
        break;
    }
    }
}

void out_msgrcv(struct task *t, const struct sys_call *c, uint32_t before)
{
    if (c->result < 0)
        effect_add_writable(t, c->args[1], 8 + min64(c->args[2], 1 << 24));
    else
        effect_add(t, c->args[1], 8 + (uint64_t)c->result);
}

void out_mempolicy(struct task *t, const struct sys_call *c, uint32_t before)
{
    effect_add_writable(t, c->args[0], 4);
    if (c->args[1])
        effect_add_writable(t, c->args[1], min64((c->args[2] + 63) / 64 * 8, 4096));
}

/* process_vm_writev into our own memory is an output; the bytes of another process are not ours to record. */
void out_vm_writev(struct task *t, const struct sys_call *c, uint32_t before)
{
    struct iovec iov;
    if ((int32_t)c->args[0] != (int32_t)raw0(SYS_getpid))
        return;
    for (uint64_t i = 0; i < min64(c->args[4], IOV_LIMIT); i++)
        if (!guest_read(&iov, c->args[3] + i * sizeof iov, sizeof iov))
            effect_add_writable(t, (uint64_t)iov.iov_base, iov.iov_len);
}

/* sysfs(2, index, buffer): a file system's name. */
void out_sysfs(struct task *t, const struct sys_call *c, uint32_t before)
{
    if ((uint32_t)c->args[0] == 2)
        add_string(t, c->args[2], 256);
}

/* ---- calls that need a closer look before they are made ---- */

/* Options whose structures point to more memory, or that write more than they are given room for. */
static bool points_on(int level, int option)
{
    switch (level) {
    case SOL_IP:
        return option >= EBT_FIRST && option <= EBT_LAST;
    case IPPROTO_TCP:
        return option == TCP_AO_GET_KEYS || option == TCP_ZEROCOPY_RECEIVE;
    case SOL_MPTCP:
        return option == MPTCP_FULL_INFO;
    }
    return false;
}

bool slow_getsockopt(const struct sys_call *c)
{
    return points_on((int)c->args[1], (int)c->args[2]);
}

/* Options that make the kernel write to memory that they name, at once (counters of a table replaced) or later. */
bool slow_setsockopt(const struct sys_call *c)
{
    int option = (int)c->args[2];
    switch ((int)c->args[1]) {
    case SOL_IP:
        return option == XT_SO_SET_REPLACE || option == ARPT_SO_SET_REPLACE || option == EBT_FIRST;
    case SOL_IPV6:
        return option == XT_SO_SET_REPLACE;
    case SOL_XDP:
    case SOL_RDS:
        return true;
    }
    return false;
}

static bool message_names_hidden(const struct msghdr *m)
{
    struct cmsghdr head;
    uint64_t at = (uint64_t)m->msg_control, end = at + m->msg_controllen;
    for (; at && at + sizeof head <= end && !guest_read(&head, at, sizeof head);
         at += (head.cmsg_len + 7) & ~7ull) {
        if (head.cmsg_len < sizeof head || head.cmsg_len > end - at)
            return false;
        bool rights = head.cmsg_level == SOL_SOCKET && head.cmsg_type == SCM_RIGHTS;
        int fd;
        for (uint64_t i = sizeof head; rights && i + sizeof fd <= head.cmsg_len; i += sizeof fd)
            if (!guest_read(&fd, at + i, sizeof fd) && hostfd_is(fd))
                return true;
    }
    return false;
}

bool slow_sendmsg(const struct sys_call *c)
{
    struct msghdr m;
    return !guest_read(&m, c->args[1], sizeof m) && message_names_hidden(&m);
}

bool slow_sendmmsg(const struct sys_call *c)
{
    struct mmsghdr m;
    for (uint64_t i = 0; i < min64((uint32_t)c->args[2], IOV_LIMIT); i++)
        if (guest_read(&m, c->args[1] + i * sizeof m, sizeof m))
            return false;
        else if (message_names_hidden(&m.msg_hdr))
            return true;
    return false;
}

bool slow_recvmsg(const struct sys_call *c)
{
    struct msghdr m;
    return !guest_read(&m, c->args[1], sizeof m) && m.msg_control;
}

bool slow_recvmmsg(const struct sys_call *c)
{
    struct mmsghdr m;
    for (uint64_t i = 0; i < min64((uint32_t)c->args[2], IOV_LIMIT); i++)
        if (guest_read(&m, c->args[1] + i * sizeof m, sizeof m))
            return false;
        else if (m.msg_hdr.msg_control)
            return true;
    return false;
}

/* ---- ioctl ---- */

const struct ioctl_row *ioctl_find(uint32_t cmd)
{
    uint32_t low = 0, high = ioctl_table_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (ioctl_table[middle].cmd == cmd)
            return &ioctl_table[middle];
        if (ioctl_table[middle].cmd < cmd)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/*
 * Families of which every command that reads fills one structure without pointers, of the size that the command encodes:
 * some take any size (EVIOCGNAME), and some grow with the kernel (PIDFD_GET_INFO). Size of it, or 0.
 */
static uint32_t flat_size(uint32_t command)
{
    enum {
        READ = 2,
        EVDEV = 'E',
        EVIOCGMASK = 0x92,
        HIDRAW = 'H',
        JOYSTICK = 'j',
        WATCHDOG = 'W',
        PIDFD = 0xff
    };
    uint32_t family = command >> 8 & 0xff, size = command >> 16 & 0x3fff;
    if (!(command >> 30 & READ))
        return 0;
    bool flat = family == HIDRAW || family == JOYSTICK || family == WATCHDOG || family == PIDFD ||
                (family == EVDEV && (command & 0xff) != EVIOCGMASK);
    return flat ? size : 0;
}

bool slow_ioctl(const struct sys_call *c)
{
    return !ioctl_find((uint32_t)c->args[1]) && !flat_size((uint32_t)c->args[1]);
}

void out_ioctl(struct task *t, const struct sys_call *c, uint32_t before)
{
    if (c->result == -ENOTTY || c->result == -EBADF)
        return; /* other errors may come with an answer, as EBADR of FS_IOC_FIEMAP does */
    const struct ioctl_row *row = ioctl_find((uint32_t)c->args[1]);
    if (row && row->fn)
        row->fn(t, c, before);
    else if (c->args[2])
        effect_add_writable(t, c->args[2], row ? row->size : flat_size((uint32_t)c->args[1]));
}

/* struct ifconf { int len; char *buf }: len is replaced by the bytes used. */
void ioctl_ifconf(struct task *t, const struct sys_call *c, uint32_t before)
{
    struct {
        int32_t length, pad;
        uint64_t buffer;
    } conf;
    if (guest_read(&conf, c->args[2], sizeof conf))
        return;
    effect_add_writable(t, c->args[2], 4);
    if (conf.length > 0)
        effect_add_writable(t, conf.buffer, (uint64_t)conf.length);
}

/* struct ifreq with a pointer at offset 16 to struct hwtstamp_config, three ints. */
void ioctl_hwtstamp(struct task *t, const struct sys_call *c, uint32_t before)
{
    uint64_t config;
    effect_add_writable(t, c->args[2], 40);
    if (!guest_read(&config, c->args[2] + 16, sizeof config))
        effect_add_writable(t, config, 12);
}

/* struct file_dedupe_range: 24 bytes, the count of destinations at offset 16, and 32 bytes for each. */
void ioctl_dedupe(struct task *t, const struct sys_call *c, uint32_t before)
{
    uint16_t count;
    if (!guest_read(&count, c->args[2] + 16, sizeof count))
        effect_add_writable(t, c->args[2], 24 + 32 * (uint64_t)count);
}

/* struct fiemap: 32 bytes, then 56 for each extent; the number mapped is at offset 20. */
void ioctl_fiemap(struct task *t, const struct sys_call *c, uint32_t before)
{
    uint32_t head[8];
    if (guest_read(head, c->args[2], sizeof head))
        return;
    uint64_t extents = head[6] ? min64(head[5], head[6]) : 0;
    effect_add_writable(t, c->args[2], sizeof head + extents * 56);
}
