/* note.c: what the engine says to people, through the trace; and maps of the event being built. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/event/event.h"
#include "engine/host/hostfd.h"

enum { NOTES_MAX = 64, NOTE_TEXT = 1000 };

/* True the first time that this text is seen in this process. */
static bool first_time(const char *text)
{
    static char *said[NOTES_MAX];
    for (int i = 0; i < NOTES_MAX; i++) {
        if (!said[i]) {
            said[i] = strdup(text);
            return true;
        }
        if (!strcmp(said[i], text))
            return false;
    }
    return false;
}

void event_note(const char *format, ...)
{
    char text[NOTE_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (engine.mode != ENGINE_RECORD || !engine.ring || !first_time(text))
        return;
    LOG(event, "note: %s", text);
    uint32_t len = (uint32_t)strlen(text);
    uint8_t room[sizeof(struct trace_note) + NOTE_TEXT + 8] = {0};
    struct trace_note *n = (struct trace_note *)room;
    *n = (struct trace_note){
        .rec = {(uint32_t)sizeof *n + ((len + 7) & ~7u), REC_NOTE, 0},
        .space = engine.space_number,
        .textlen = len,
        .seq = __atomic_fetch_add(&engine.control->seq, 1, __ATOMIC_RELAXED),
    };
    memcpy(n + 1, text, len);
    event_record(&n->rec);
}

void event_unsupported(const char *format, ...)
{
    char text[NOTE_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    LOG(event, "unsupported: %s", text);
    if (engine.mode == ENGINE_RECORD && engine.ring)
        event_end(END_UNSUPPORTED, EXIT_ENVIRONMENT, text);
    hostfd_leave();
    _exit(EXIT_ENVIRONMENT);
}

void event_map(struct task *t, const struct trace_map *map, const char *path)
{
    uint32_t pathlen = path ? (uint32_t)strlen(path) : 0;
    uint32_t size = (uint32_t)sizeof *map + ((pathlen + 7) & ~7u);
    if (t->maps_count == 255)
        event_unsupported("one system call that changes more than 255 mappings");
    struct trace_map *m = event_map_room(t, size);
    *m = *map;
    m->rec = (struct trace_record){size, REC_MAP, map->rec.flags};
    m->pathlen = (uint16_t)pathlen;
    memcpy(m + 1, path ? path : "", pathlen);
}
