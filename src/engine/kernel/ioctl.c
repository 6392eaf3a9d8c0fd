/*
 * ioctl.c: what ioctl commands write at their argument, sorted by command, and what happens to the rest.
 *
 * Commands without a row are recorded by finding what the kernel wrote (unknown.c), for the size that a
 * command encodes says nothing of memory its structure points to.
 */
#include <errno.h>
#include <stdio.h>

#include "engine/kernel/effects.h"

const struct ioctl_row ioctl_table[] = {
    {0x00000001, 4, "FIBMAP", NULL},
    {0x00000002, 4, "FIGETBSZ", NULL},
    {0x0000125d, 0, "BLKROSET", NULL},
    {0x0000125e, 4, "BLKROGET", NULL},
    {0x0000125f, 0, "BLKRRPART", NULL},
    {0x00001260, 8, "BLKGETSIZE", NULL},
    {0x00001261, 0, "BLKFLSBUF", NULL},
    {0x00001263, 8, "BLKRAGET", NULL},
    {0x00001265, 8, "BLKFRAGET", NULL},
    {0x00001267, 4, "BLKSECTGET", NULL},
    {0x00001268, 4, "BLKSSZGET", NULL},
    {0x00001277, 0, "BLKDISCARD", NULL},
    {0x00001278, 4, "BLKIOMIN", NULL},
    {0x00001279, 4, "BLKIOOPT", NULL},
    {0x0000127a, 4, "BLKALIGNOFF", NULL},
    {0x0000127b, 4, "BLKPBSZGET", NULL},
    {0x0000127c, 4, "BLKDISCARDZEROES", NULL},
    {0x0000127d, 0, "BLKSECDISCARD", NULL},
    {0x0000127e, 2, "BLKROTATIONAL", NULL},
    {0x0000127f, 0, "BLKZEROOUT", NULL},
    {0x00004b31, 1, "KDGETLED", NULL},
    {0x00004b33, 1, "KDGKBTYPE", NULL},
    {0x00004b3b, 4, "KDGETMODE", NULL},
    {0x00004b44, 4, "KDGKBMODE", NULL},
    {0x00004b46, 4, "KDGKBENT", NULL},
    {0x00004b4a, 1028, "KDGKBDIACR", NULL},
    {0x00004b62, 4, "KDGKBMETA", NULL},
    {0x00004b64, 1, "KDGKBLED", NULL},
    {0x00004c05, 232, "LOOP_GET_STATUS64", NULL},
    {0x00004c82, 0, "LOOP_CTL_GET_FREE", NULL},
    {0x00005326, 0, "CDROM_DRIVE_STATUS", NULL},
    {0x00005331, 0, "CDROM_GET_CAPABILITY", NULL},
    {0x00005401, 36, "TCGETS", NULL},
    {0x00005402, 0, "TCSETS", NULL},
    {0x00005403, 0, "TCSETSW", NULL},
    {0x00005404, 0, "TCSETSF", NULL},
    {0x00005405, 18, "TCGETA", NULL},
    {0x00005406, 0, "TCSETA", NULL},
    {0x00005407, 0, "TCSETAW", NULL},
    {0x00005408, 0, "TCSETAF", NULL},
    {0x00005409, 0, "TCSBRK", NULL},
    {0x0000540a, 0, "TCXONC", NULL},
    {0x0000540b, 0, "TCFLSH", NULL},
    {0x0000540c, 0, "TIOCEXCL", NULL},
    {0x0000540d, 0, "TIOCNXCL", NULL},
    {0x0000540e, 0, "TIOCSCTTY", NULL},
    {0x0000540f, 4, "TIOCGPGRP", NULL},
    {0x00005410, 0, "TIOCSPGRP", NULL},
    {0x00005411, 4, "TIOCOUTQ", NULL},
    {0x00005412, 0, "TIOCSTI", NULL},
    {0x00005413, 8, "TIOCGWINSZ", NULL},
    {0x00005414, 0, "TIOCSWINSZ", NULL},
    {0x00005415, 4, "TIOCMGET", NULL},
    {0x00005416, 0, "TIOCMBIS", NULL},
    {0x00005417, 0, "TIOCMBIC", NULL},
    {0x00005418, 0, "TIOCMSET", NULL},
    {0x00005419, 4, "TIOCGSOFTCAR", NULL},
    {0x0000541a, 0, "TIOCSSOFTCAR", NULL},
    {0x0000541b, 4, "FIONREAD", NULL},
    {0x0000541c, 64, "TIOCLINUX", NULL},
    {0x0000541d, 0, "TIOCCONS", NULL},
    {0x0000541e, 72, "TIOCGSERIAL", NULL},
    {0x0000541f, 0, "TIOCSSERIAL", NULL},
    {0x00005420, 0, "TIOCPKT", NULL},
    {0x00005421, 0, "FIONBIO", NULL},
    {0x00005422, 0, "TIOCNOTTY", NULL},
    {0x00005423, 0, "TIOCSETD", NULL},
    {0x00005424, 4, "TIOCGETD", NULL},
    {0x00005425, 0, "TCSBRKP", NULL},
    {0x00005427, 0, "TIOCSBRK", NULL},
    {0x00005428, 0, "TIOCCBRK", NULL},
    {0x00005429, 4, "TIOCGSID", NULL},
    {0x0000542e, 32, "TIOCGRS485", NULL},
    {0x0000542f, 32, "TIOCSRS485", NULL},
    {0x00005432, 8, "TCGETX", NULL},
    {0x00005433, 0, "TCSETX", NULL},
    {0x00005437, 0, "TIOCVHANGUP", NULL},
    {0x00005441, 0, "TIOCGPTPEER", NULL},
    {0x00005450, 0, "FIONCLEX", NULL},
    {0x00005451, 0, "FIOCLEX", NULL},
    {0x00005452, 0, "FIOASYNC", NULL},
    {0x00005456, 36, "TIOCGLCKTRMIOS", NULL},
    {0x00005457, 0, "TIOCSLCKTRMIOS", NULL},
    {0x0000545c, 0, "TIOCMIWAIT", NULL},
    {0x0000545d, 80, "TIOCGICOUNT", NULL},
    {0x00005460, 8, "FIOQSIZE", NULL},
    {0x00005600, 4, "VT_OPENQRY", NULL},
    {0x00005601, 8, "VT_GETMODE", NULL},
    {0x00005603, 6, "VT_GETSTATE", NULL},
    {0x00008901, 0, "FIOSETOWN", NULL},
    {0x00008902, 0, "SIOCSPGRP", NULL},
    {0x00008903, 4, "FIOGETOWN", NULL},
    {0x00008904, 4, "SIOCGPGRP", NULL},
    {0x00008905, 4, "SIOCATMARK", NULL},
    {0x00008906, 16, "SIOCGSTAMP_OLD", NULL},
    {0x00008907, 16, "SIOCGSTAMPNS_OLD", NULL},
    {0x0000890b, 0, "SIOCADDRT", NULL},
    {0x0000890c, 0, "SIOCDELRT", NULL},
    {0x00008910, 40, "SIOCGIFNAME", NULL},
    {0x00008912, 0, "SIOCGIFCONF", ioctl_ifconf},
    {0x00008913, 40, "SIOCGIFFLAGS", NULL},
    {0x00008914, 0, "SIOCSIFFLAGS", NULL},
    {0x00008915, 40, "SIOCGIFADDR", NULL},
    {0x00008916, 0, "SIOCSIFADDR", NULL},
    {0x00008917, 40, "SIOCGIFDSTADDR", NULL},
    {0x00008919, 40, "SIOCGIFBRDADDR", NULL},
    {0x0000891b, 40, "SIOCGIFNETMASK", NULL},
    {0x0000891d, 40, "SIOCGIFMETRIC", NULL},
    {0x0000891f, 40, "SIOCGIFMEM", NULL},
    {0x00008921, 40, "SIOCGIFMTU", NULL},
    {0x00008922, 0, "SIOCSIFMTU", NULL},
    {0x00008927, 40, "SIOCGIFHWADDR", NULL},
    {0x00008929, 40, "SIOCGIFSLAVE", NULL},
    {0x00008933, 40, "SIOCGIFINDEX", NULL},
    {0x00008935, 40, "SIOCGIFPFLAGS", NULL},
    {0x00008938, 40, "SIOCGIFCOUNT", NULL},
    {0x00008942, 40, "SIOCGIFTXQLEN", NULL},
    {0x00008954, 68, "SIOCGARP", NULL},
    {0x00008970, 40, "SIOCGIFMAP", NULL},
    {0x0000b701, 0, "NS_GET_USERNS", NULL},
    {0x0000b702, 0, "NS_GET_PARENT", NULL},
    {0x0000b703, 0, "NS_GET_NSTYPE", NULL},
    {0x0000b704, 4, "NS_GET_OWNER_UID", NULL},
    {0x40045201, 0, "RNDADDTOENTCNT", NULL},
    {0x40045431, 0, "TIOCSPTLCK", NULL},
    {0x40045436, 0, "TIOCSIG", NULL},
    {0x40049409, 0, "FICLONE", NULL},
    {0x40081271, 0, "BLKBSZSET", NULL},
    {0x40086602, 0, "FS_IOC_SETFLAGS", NULL},
    {0x401c5820, 0, "FS_IOC_FSSETXATTR", NULL},
    {0x4020940d, 0, "FICLONERANGE", NULL},
    {0x402c542b, 0, "TCSETS2", NULL},
    {0x402c542c, 0, "TCSETSW2", NULL},
    {0x402c542d, 0, "TCSETSF2", NULL},
    {0x80045200, 4, "RNDGETENTCNT", NULL},
    {0x80045430, 4, "TIOCGPTN", NULL},
    {0x80045432, 4, "TIOCGDEV", NULL},
    {0x80045438, 4, "TIOCGPKT", NULL},
    {0x80045439, 4, "TIOCGPTLCK", NULL},
    {0x80045440, 4, "TIOCGEXCL", NULL},
    {0x80081270, 4, "BLKBSZGET", NULL},
    {0x80081272, 8, "BLKGETSIZE64", NULL},
    {0x80081280, 8, "BLKGETDISKSEQ", NULL},
    {0x80086601, 4, "FS_IOC_GETFLAGS", NULL},
    {0x80087601, 4, "FS_IOC_GETVERSION", NULL},
    {0x80088a02, 8, "EPIOCGPARAMS", NULL},
    {0x80108906, 16, "SIOCGSTAMP_NEW", NULL},
    {0x80108907, 16, "SIOCGSTAMPNS_NEW", NULL},
    {0x80111500, 17, "FS_IOC_GETFSUUID", NULL},
    {0x801c581f, 28, "FS_IOC_FSGETXATTR", NULL},
    {0x80247008, 36, "RTC_ALM_READ", NULL},
    {0x80247009, 36, "RTC_RD_TIME", NULL},
    {0x802c542a, 44, "TCGETS2", NULL},
    {0x81009431, 256, "FS_IOC_GETFSLABEL", NULL},
    {0xc0045877, 40, "FIFREEZE", NULL},
    {0xc0045878, 40, "FITHAW", NULL},
    {0xc0185879, 24, "FITRIM", NULL},
    {0xc020660b, 0, "FS_IOC_FIEMAP", ioctl_fiemap},
};

const uint32_t ioctl_table_count = sizeof ioctl_table / sizeof ioctl_table[0];

/* The structure named by an encoded command, for memory the search cannot compare. */
static void add_encoded(struct task *t, const struct sys_call *c)
{
    enum { READ = 2 };
    uint32_t command = (uint32_t)c->args[1], size = command >> 16 & 0x3fff;
    if ((command >> 30 & READ) && size && c->args[2])
        effect_add_writable(t, c->args[2], size);
}

/* Commands after which something else than the call writes to the program's memory, or catches its faults. */
static const char *writes_later(uint32_t command)
{
    switch (command) {
    case 0xaa00:
        return "USERFAULTFD_IOC_NEW";
    case 0xae01:
        return "KVM_CREATE_VM";
    case 0x3b71:
        return "VFIO_IOMMU_MAP_DMA";
    case 0x4008af03:
        return "VHOST_SET_MEM_TABLE";
    case 0x8038550a:
        return "USBDEVFS_SUBMITURB";
    }
    return NULL;
}

int64_t rec_ioctl(struct task *t, struct sys_call *c)
{
    char what[32];
    const char *later = writes_later((uint32_t)c->args[1]);
    if (later) {
        event_note("%s cannot be recorded: the program was told that the kernel lacks it", later);
        return c->result = -ENOTTY;
    }
    snprintf(what, sizeof what, "ioctl command 0x%x", (uint32_t)c->args[1]);
    sys_record_unknown(t, c, what);
    if (!c->restart && c->result >= 0)
        add_encoded(t, c);
    return c->result;
}

/* ---- socket options ---- */

int64_t rec_getsockopt(struct task *t, struct sys_call *c)
{
    enum { TCP_LEVEL = 6, TCP_ZEROCOPY_RECEIVE = 35 };
    char what[64];
    int level = (int)c->args[1], option = (int)c->args[2];
    if (level == TCP_LEVEL && option == TCP_ZEROCOPY_RECEIVE) {
        event_note("TCP_ZEROCOPY_RECEIVE cannot be recorded: the program was told that the kernel lacks it");
        return c->result = -ENOPROTOOPT;
    }
    snprintf(what, sizeof what, "socket option %d of level %d", option, level);
    return sys_record_unknown(t, c, what);
}

int64_t rec_setsockopt(struct task *t, struct sys_call *c)
{
    enum { RDS_LEVEL = 276, RDS_GET_MR = 2, RDS_GET_MR_FOR_DEST = 7, XDP_LEVEL = 283, XDP_UMEM_REG = 4 };
    char what[64];
    int level = (int)c->args[1], option = (int)c->args[2];
    snprintf(what, sizeof what, "socket option %d of level %d", option, level);
    if (level != RDS_LEVEL && level != XDP_LEVEL)
        return sys_record_unknown(t, c, what);
    if (level == XDP_LEVEL ? option != XDP_UMEM_REG : option != RDS_GET_MR && option != RDS_GET_MR_FOR_DEST)
        return sys_generic(t, c, &sys_table[c->nr]);
    event_note("%s cannot be recorded: the program was told that the kernel lacks it", what);
    return c->result = -ENOPROTOOPT;
}
