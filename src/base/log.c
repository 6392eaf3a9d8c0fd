/* log.c: see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

uint32_t log_mask;
static int log_fd = 2;

static const char *const topic_names[] = {
#define X(name) #name,
    LOG_TOPICS(X)
#undef X
};

int log_select(const char *text, const char **bad)
{
    while (*text) {
        size_t n = strcspn(text, ",");
        uint32_t bits = 0;
        if (n == 3 && !memcmp(text, "all", 3))
            bits = (1u << LOG_TOPIC_COUNT) - 1;
        for (int i = 0; i < LOG_TOPIC_COUNT; i++)
            if (strlen(topic_names[i]) == n && !memcmp(text, topic_names[i], n))
                bits = 1u << i;
        if (!bits) {
            *bad = text;
            return -1;
        }
        log_mask |= bits;
        text += n;
        text += *text == ',';
    }
    return 0;
}

void log_open(int fd)
{
    log_fd = fd;
}

void log_line(enum log_topic topic, const char *format, ...)
{
    char text[2048];
    int n = snprintf(text, sizeof text, "clio[%d] %s: ", (int)getpid(), topic_names[topic]);
    va_list args;
    va_start(args, format);
    int m = vsnprintf(text + n, sizeof text - (size_t)n - 1, format, args);
    va_end(args);
    n = m < 0 ? n : n + m < (int)sizeof text - 1 ? n + m : (int)sizeof text - 2;
    text[n++] = '\n';
    if (write(log_fd, text, (size_t)n) < 0)
        return; /* nowhere to say it */
}
