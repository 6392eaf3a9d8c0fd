/* privileged.h: programs that only the kernel can run as they should be run, for the command and for the
 * engine. */
#ifndef CLIO_BASE_PRIVILEGED_H
#define CLIO_BASE_PRIVILEGED_H

/*
 * Why executing the ELF file in `fd` (readable, no O_PATH) would give this process another identity or more
 * capabilities: "it is set-uid" etc.; NULL when it would not, for the file, its mount or the process's state.
 */
const char *why_privileged(int fd);

#endif
