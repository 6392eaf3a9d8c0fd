/*
 * lifeline.h: how readers know whether a recording is alive.
 *
 * TRACE/lifeline is a file on which every process of a recording holds a read lock (F_OFD_SETLK, whole file):
 * the recorder, the store (trace_sink_open takes it) and, by inheriting the recorder's descriptor, every
 * engine process. Such a lock goes away with the last copy of its descriptor, so it needs no cleaning up; and
 * testing it needs no permission and disturbs nobody.
 *
 * `clio record` makes it a FIFO and keeps the only end for writing: the kernel kills each engine process
 * (O_ASYNC on an end for reading) when the recorder dies. Opening it must therefore never wait for the other
 * end.
 */
#ifndef CLIO_TRACE_LIFELINE_H
#define CLIO_TRACE_LIFELINE_H

#include <stdbool.h>

/* Holds the lifeline of the trace in directory `dir`: a close-on-exec descriptor, the caller's, or -1 with
 * errno. */
int trace_lifeline_hold(int dir);
/* Whether anybody holds it; false for a trace without the file. */
bool trace_lifeline_held(int dir);

#endif
