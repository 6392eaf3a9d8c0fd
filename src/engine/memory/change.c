/* change.c: see change.h. */
#include "engine/memory/change.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/host/raw.h"
#include "engine/memory/capture.h"
#include "engine/memory/objects.h"
#include "engine/memory/space.h"

#define CONTENT_MAX (1ull << 30) /* bytes of a mapping recorded as data */

static void report(uint8_t op, uint64_t addr, uint64_t len, const struct trace_map *rest, const char *path)
{
    struct trace_map map = *rest;
    map.rec = (struct trace_record){.size = sizeof map, .kind = REC_MAP, .flags = rest->rec.flags};
    map.op = op;
    map.addr = addr;
    map.len = len;
    map.pathlen = path ? (uint16_t)strlen(path) : 0;
    event_map(engine.task, &map, path);
}

/* captured: the content of v->file is what the object holds now. */
static void report_mapping(const struct vma *v, bool captured)
{
    struct trace_map map = {.rec.flags = v->object, .prot = v->prot, .shared = v->shared};
    if (v->object)
        map.offset = v->offset;
    if (v->file)
        map.aux = v->file->size;
    if (v->file && captured)
        memcpy(map.file, v->file->hash, sizeof map.file);
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
    if (v->object) {
        effect_add_file(engine.task, v->start, v->end);
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

/* Another mapping shows other content of the file than was captured just now. */
static bool shown_otherwise(const struct space *s, const struct vma *v)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->vmas[i].object == v->object &&
            memcmp(s->vmas[i].file->hash, v->file->hash, sizeof v->file->hash))
            return true;
    return false;
}

/* Says what v shows. */
static void number_object(const struct space *s, struct vma *v, int fd)
{
    if (v->file) {
        v->object = object_of(s, v->file->dev, v->file->ino);
        struct object *o = &objects[v->object];
        o->size = v->file->size;
        o->changed |= shown_otherwise(s, v) || (v->shared && (v->prot & PROT_WRITE));
    } else if (v->shared && fd < 0) {
        v->object = object_new(s);
    }
}

int change_map(struct space *s, const struct vma *v, int fd, int host_flags)
{
    struct vma numbered = *v;
    number_object(s, &numbered, fd);
    int error = space_map(s, &numbered, fd, host_flags);
    if (error)
        return error;
    report_mapping(&numbered, true);
    if (fd >= 0 && !v->file) {
        char path[PATH_MAX];
        record_outside(v, file_path(fd, path, sizeof path) ? path : "a device");
    }
    return 0;
}

int change_alias(struct space *s, const struct vma *v)
{
    int error = space_adopt(s, v);
    if (error)
        return error;
    report_mapping(v, false);
    if (v->file) /* of which it may show parts that no other view does */
        effect_add_file(engine.task, v->start, v->end);
    return 0;
}

int change_adopt(struct space *s, const struct vma *v, const char *what)
{
    int error = space_adopt(s, v);
    if (error)
        return error;
    report_mapping(v, true);
    record_outside(v, what);
    return 0;
}

/* The last record of the event being built, when it says that a mapping grew to `from`. */
static struct trace_map *growth_to(const struct task *t, uint64_t from)
{
    struct trace_map *last = NULL;
    for (uint32_t at = 0; at < t->maps_used; at += last->rec.size)
        last = (struct trace_map *)(t->maps + at);
    return last && last->op == MAP_OP_GROW && last->addr == from ? last : NULL;
}

/* Deep recursion grows a stack page by page: that is one record. */
static void report_growth(uint64_t from, uint64_t to, uint32_t prot)
{
    struct trace_map *last = growth_to(engine.task, to);
    if (last) {
        last->addr = from;
        last->len += to - from;
    } else {
        report(MAP_OP_GROW, from, to - from, &(struct trace_map){.prot = prot}, NULL);
    }
}

/* *above: the mapping as it was. */
static bool grow(struct space *s, uint64_t addr, struct vma *above)
{
    struct rlimit limit;
    const struct vma *v = space_at_or_above(s, addr);
    if (!v || !v->growsdown || v->start <= addr || raw4(SYS_prlimit64, 0, RLIMIT_STACK, 0, &limit))
        return false;
    *above = *v;
    return space_grow(s, addr, limit.rlim_cur);
}

bool change_grow(struct space *s, uint64_t addr)
{
    struct vma above;
    if (!grow(s, addr, &above))
        return false;
    report_growth(PAGE_DOWN(addr), above.start, above.prot);
    return true;
}

bool change_grow_like(struct space *s, uint64_t addr)
{
    struct vma above;
    if (!grow(s, addr, &above))
        return false;
    report(MAP_OP_ANON, PAGE_DOWN(addr), above.start - PAGE_DOWN(addr),
           &(struct trace_map){.prot = above.prot}, NULL);
    return true;
}

void change_grow_arguments(struct space *s, const uint64_t args[6])
{
    for (int i = 0; i < 6; i++)
        if (args[i] - s->grow_from < s->grow_to - s->grow_from)
            change_grow(s, args[i]);
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

/* What files hold now, of the parts of [start, end) that show one whose changes replay cannot know. */
static void record_files(const struct space *s, uint64_t start, uint64_t end, bool private_only)
{
    for (const struct vma *v = space_at_or_above(s, start); v && v->start < end;
         v = space_at_or_above(s, v->end))
        if (objects_differ(v) && !(v->shared && private_only))
            effect_add_file(engine.task, v->start > start ? v->start : start, v->end < end ? v->end : end);
}

/* The part of the range, from its first to its last such page, that could not be read until now. */
static bool hidden_part(const struct space *s, uint64_t start, uint64_t end, uint64_t *from, uint64_t *to)
{
    *from = end;
    *to = start;
    for (const struct vma *v = space_at_or_above(s, start); v && v->start < end;
         v = space_at_or_above(s, v->end))
        if (!v->prot && objects_differ(v)) {
            *from = *from < end ? *from : v->start > start ? v->start : start;
            *to = v->end < end ? v->end : end;
        }
    return *from < *to;
}

int change_protect(struct space *s, uint64_t start, uint64_t len, uint32_t prot)
{
    uint64_t from, to;
    bool appears = prot && hidden_part(s, start, start + len, &from, &to);
    int error = space_protect(s, start, len, prot);
    if (error)
        return error;
    report(MAP_OP_PROTECT, start, len, &(struct trace_map){.prot = prot}, NULL);
    if (appears)
        record_files(s, from, to, false);
    return 0;
}

int change_move(struct space *s, uint64_t start, uint64_t len, uint64_t old, uint64_t old_len)
{
    int error = space_move(s, start, len, old, old_len);
    if (error)
        return error;
    report(MAP_OP_MOVE, start, len, &(struct trace_map){.offset = old, .aux = old_len}, NULL);
    if (len > old_len)
        record_files(s, start + old_len, start + len, false);
    return 0;
}

int change_move_keeping(struct space *s, uint64_t start, uint64_t old, uint64_t len)
{
    int error = space_move_keeping(s, start, old, len);
    if (error)
        return error;
    report(MAP_OP_MOVE, start, len, &(struct trace_map){.offset = old, .aux = len}, NULL);
    struct vma rest = *space_find(s, old);
    rest.offset += old - rest.start;
    rest.start = old;
    rest.end = old + len;
    report_mapping(&rest, false);
    effect_add_file(engine.task, old, old + len);
    return 0;
}

void change_discard(struct space *s, uint64_t start, uint64_t len, bool removed)
{
    space_content_changed(s, start, start + len);
    report(MAP_OP_DISCARD, start, len, &(struct trace_map){.shared = removed}, NULL);
    record_files(s, start, start + len, true);
}
