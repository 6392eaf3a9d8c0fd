/*
 * verify.c: `clio verify [TRACE]`: checks every byte of a trace: all frames, all events with what they
 * consume, and that every mapped file is there with the content it had.
 *
 * Exit status 1 when something is damaged. A trace that is cut short is not damaged; that it is cut is said.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cmd/cmd.h"
#include "cmd/trace_text.h"
#include "trace/event_reader.h"
#include "trace/frame.h"
#include "trace/header.h"
#include "trace/record.h"

/* Files with more than this in holes are named by another rule (src/store/pool.h) and are checked by size
 * alone. */
#define HOLES_MAX (1ull << 30)

struct file { /* a captured file that some map refers to */
    uint8_t hash[32];
    uint64_t size;
    char *path;
};

static struct {
    struct clio_source *source;
    int dir;
    uint8_t identity[16];
    uint64_t complaints, frames, bytes, events, cuts;
    struct file *files; /* sorted by hash */
    size_t nfiles, capacity;
} v;

static void complain(const char *format, ...) PRINTF(1, 2);
static void complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("damaged: ");
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    v.complaints++;
}

/* ---- frames ---- */

static void check_frames(const char *name, uint32_t stream, uint32_t space)
{
    struct frame_file file;
    struct clio_error error;
    uint8_t *raw = NULL;
    size_t capacity = 0;
    enum frame_found found;
    frame_file_open(&file, v.dir, name, stream, space, v.identity);
    while ((found = frame_file_next(&file, &error)) == FRAME_FOUND) {
        if (!frame_file_records(&file, &raw, &capacity, &error)) {
            found = FRAME_ERROR;
            break;
        }
        v.frames++;
        v.bytes += file.header.raw_size;
    }
    if (found == FRAME_ERROR)
        complain("%s", error.text);
    if (found == FRAME_PARTIAL && !clio_source_live(v.source))
        printf("cut: %s ends inside frame %" PRIu64 " at offset %" PRIu64 "\n", name, file.sequence,
               file.offset);
    free(raw);
    frame_file_close(&file);
}

static void check_space_frames(uint32_t space)
{
    static const char *const names[] = {
        [STREAM_EVENTS] = "events", [STREAM_DATA] = "data", [STREAM_MAPS] = "maps"};
    for (uint32_t stream = STREAM_EVENTS; stream < STREAM_COUNT; stream++) {
        char name[48];
        snprintf(name, sizeof name, "spaces/%u/%s", space, names[stream]);
        check_frames(name, stream, space);
    }
}

/* ---- events ---- */

static void note_file(const struct trace_map *map)
{
    static const uint8_t none[32];
    size_t low = 0, high = v.nfiles;
    if (!memcmp(map->file, none, sizeof none))
        return; /* one more view of a file that is mapped already */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (memcmp(v.files[middle].hash, map->file, 32) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < v.nfiles && memcmp(v.files[low].hash, map->file, 32) == 0)
        return;
    if (v.nfiles == v.capacity) {
        v.capacity = v.capacity * 2 + 16;
        v.files = reallocarray(v.files, v.capacity, sizeof *v.files);
        if (!v.files)
            die("out of memory");
    }
    memmove(v.files + low + 1, v.files + low, (v.nfiles - low) * sizeof *v.files);
    v.files[low] = (struct file){.size = map->aux, .path = strndup(trace_map_path(map), map->pathlen)};
    memcpy(v.files[low].hash, map->file, 32);
    v.nfiles++;
}

static void check_events(uint32_t space)
{
    struct clio_error error;
    struct trace_reader *reader = trace_reader_open(v.source, space, &error);
    if (!reader) {
        complain("%s", error.text);
        return;
    }
    struct trace_item item;
    enum clio_next next;
    while ((next = trace_reader_next(reader, &item)) == CLIO_RECORD) {
        v.events++;
        for (uint32_t i = 0; i < item.nmaps; i++)
            if (item.maps[i]->op == MAP_OP_FILE)
                note_file(item.maps[i]);
    }
    if (next == CLIO_ERROR)
        complain("%s", trace_reader_error(reader)->text);
    if (next == CLIO_CUT_HERE) {
        v.cuts++;
        printf("cut: %s\n", trace_reader_error(reader)->text);
    }
    trace_reader_close(reader);
}

/* ---- captured files ---- */

static bool hash_of(int fd, uint8_t hash[32])
{
    static uint8_t buffer[1 << 18];
    crypto_generichash_state state;
    ssize_t n;
    crypto_generichash_init(&state, NULL, 0, 32);
    while ((n = read(fd, buffer, sizeof buffer)) > 0)
        crypto_generichash_update(&state, buffer, (unsigned long long)n);
    crypto_generichash_final(&state, hash, 32);
    return n == 0;
}

static void check_content(int fd, const struct file *f, const char *name)
{
    struct stat st;
    uint8_t hash[32];
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        complain("%s (%s): not a regular file", name, f->path);
    else if ((uint64_t)st.st_size < f->size)
        complain("%s (%s): %lld bytes, captured with %" PRIu64, name, f->path, (long long)st.st_size,
                 f->size);
    else if ((uint64_t)st.st_size > (uint64_t)st.st_blocks * 512 + HOLES_MAX)
        printf("not checked: %s (%s): a sparse file\n", name, f->path);
    else if (!hash_of(fd, hash))
        complain("%s (%s): %s", name, f->path, strerror(errno));
    else if (memcmp(hash, f->hash, 32) != 0)
        complain("%s (%s): its content was changed after recording", name, f->path);
}

static void check_file(const struct file *f)
{
    char name[80] = "files/";
    for (int i = 0; i < 32; i++)
        sprintf(name + 6 + 2 * i, "%02x", f->hash[i]);
    int fd = openat(v.dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        complain("%s (%s): %s", name, f->path, strerror(errno));
        return;
    }
    check_content(fd, f, name);
    close(fd);
}

int cmd_verify(int argc, char **argv)
{
    const struct clio_space_info *spaces;
    size_t count;
    struct clio_error error;
    char size[32];
    v.source = open_trace(only_trace(argc, argv));
    v.dir = open(clio_source_path(v.source), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    trace_identity_parse(clio_source_info(v.source)->identity, v.identity);
    check_frames("tasks", STREAM_TASKS, 0);
    if (!clio_source_spaces(v.source, &spaces, &count, &error) && v.complaints == 0)
        complain("%s", error.text);
    for (size_t i = 0; i < count; i++) {
        check_space_frames(spaces[i].space);
        check_events(spaces[i].space);
    }
    for (size_t i = 0; i < v.nfiles; i++)
        check_file(&v.files[i]);
    printf("%s: %zu spaces, %" PRIu64 " events, %" PRIu64 " frames, %s of records, %zu files: %s\n",
           clio_source_path(v.source), count, v.events, v.frames, size_text(v.bytes, size), v.nfiles,
           v.complaints ? "damaged"
           : v.cuts     ? "good as far as it goes"
                        : "good");
    close(v.dir);
    clio_source_close(v.source);
    return v.complaints ? EXIT_NOT_SO : EXIT_DONE;
}
