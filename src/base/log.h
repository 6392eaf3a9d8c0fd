/*
 * log.h: `--log TOPIC[,TOPIC...]`: what the program is doing, for its developers. Topics are listed once,
 * here.
 *
 * A line goes to the log descriptor (log_open), with a prefix "clio[pid] topic: ". LOG costs one test of a
 * bit mask when its topic is off. Never called from code compiled for general registers only.
 */
#ifndef CLIO_BASE_LOG_H
#define CLIO_BASE_LOG_H

#include <stdint.h>

#define LOG_TOPICS(X)                                                                                        \
    X(load) X(map) X(xlate) X(block) X(syscall) X(signal) X(event) X(process) X(store) X(file) X(chronicle)

enum log_topic {
#define X(name) LOG_##name,
    LOG_TOPICS(X)
#undef X
        LOG_TOPIC_COUNT
};

extern uint32_t log_mask;

/* Parses "a,b" or "all". Returns 0, or -1 for an unknown topic, whose name is put into *bad (points into
 * text). */
int log_select(const char *text, const char **bad);
void log_open(int fd); /* default 2 */
void log_line(enum log_topic topic, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define LOG_ON(topic) (log_mask & (1u << LOG_##topic))
#define LOG(topic, ...)                                                                                      \
    do {                                                                                                     \
        if (__builtin_expect(LOG_ON(topic), 0))                                                              \
            log_line(LOG_##topic, __VA_ARGS__);                                                              \
    } while (0)

#endif
