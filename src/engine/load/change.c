/* change.c: see change.h. */
#include "engine/load/change.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/load/files.h"
#include "engine/load/space.h"

#define CONTENT_MAX (1ull << 30) /* bytes of a mapping recorded as data */

static void report(uint8_t op, uint64_t addr, uint64_t len, const struct trace_map *rest, const char *path)
{
    struct trace_map map = *rest;
    map.rec = (struct trace_record){.size = sizeof map, .kind = REC_MAP};
    map.op = op;
    map.addr = addr;
    map.len = len;
    map.pathlen = path ? (uint16_t)strlen(path) : 0;
    event_map(engine.task, &map, path);
}

static void report_mapping(const struct vma *v)
{
    struct trace_map map = {.prot = v->prot, .shared = v->shared};
    if (v->file) {
        map.offset = v->offset;
        map.aux = v->file->size;
        memcpy(map.file, v->file->hash, sizeof map.file);
    }
    report(v->file ? MAP_OP_FILE : MAP_OP_ANON, v->start, v->end - v->start, &map,
           v->file ? v->file->path : NULL);
}

/* Adds what can be read of the mapping to the event's effects, page by page since a page may lie behind the
 * file's end. */
static void record_content(const struct vma *v, const char *what)
{
    if (!(v->prot & (PROT_READ | PROT_WRITE | PROT_EXEC)) || v->end - v->start > CONTENT_MAX) {
        event_note(
            "the content of the mapping of %s at 0x%lx is not recorded; a replay that reads it will differ",
            what, (unsigned long)v->start);
        return;
    }
    static uint8_t page[PAGE_SIZE];
    uint64_t from = v->start;
    for (uint64_t at = v->start; at < v->end; at += PAGE_SIZE)
        if (guest_read(page, at, sizeof page)) {
            effect_add(engine.task, from, at - from);
            from = at + PAGE_SIZE;
        }
    if (from < v->end)
        effect_add(engine.task, from, v->end - from);
}

static void record_outside(const struct vma *v, const char *what)
{
    event_note("%s is mapped at 0x%lx: its content is recorded as it was then; changes made from outside are "
               "not seen",
               what, (unsigned long)v->start);
    record_content(v, what);
}

int change_map(struct space *s, const struct vma *v, int fd, int host_flags)
{
    int error = space_map(s, v, fd, host_flags);
    if (error)
        return error;
    report_mapping(v);
    if (fd >= 0 && !v->file) {
        char path[PATH_MAX];
        record_outside(v, file_path(fd, path, sizeof path) ? path : "a device");
    }
    return 0;
}

int change_adopt(struct space *s, const struct vma *v, const char *what)
{
    int error = space_adopt(s, v);
    if (error)
        return error;
    report_mapping(v);
    record_outside(v, what);
    return 0;
}

int change_unmap(struct space *s, uint64_t start, uint64_t len)
{
    if (space_free(s, start, len))
        return 0;
    int error = space_unmap(s, start, len);
    if (!error)
        report(MAP_OP_UNMAP, start, len, &(struct trace_map){0}, NULL);
    return error;
}

int change_protect(struct space *s, uint64_t start, uint64_t len, uint32_t prot)
{
    int error = space_protect(s, start, len, prot);
    if (!error)
        report(MAP_OP_PROTECT, start, len, &(struct trace_map){.prot = prot}, NULL);
    return error;
}

int change_move(struct space *s, uint64_t start, uint64_t len, uint64_t old, uint64_t old_len)
{
    int error = space_move(s, start, len, old, old_len);
    if (!error)
        report(MAP_OP_MOVE, start, len, &(struct trace_map){.offset = old, .aux = old_len}, NULL);
    return error;
}

void change_discard(struct space *s, uint64_t start, uint64_t len, bool removed)
{
    for (struct vma *v = space_at_or_above(s, start); v && v->start < start + len;
         v = space_at_or_above(s, v->end))
        if (v->prot & PROT_EXEC)
            code_invalidate(v->start > start ? v->start : start, v->end < start + len ? v->end : start + len);
    report(MAP_OP_DISCARD, start, len, &(struct trace_map){.shared = removed}, NULL);
}
