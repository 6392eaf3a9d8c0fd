/* trace_text.c: see trace_text.h. */
#include "cmd/trace_text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/names.h"
#include "engine/cpu/cpu.h"

_Noreturn void trace_failed(const struct clio_error *error)
{
    if (error->fault == CLIO_FAULT_ARGUMENT)
        usage("%s", error->text);
    die("%s", error->text);
}

struct clio_source *open_trace(const char *trace)
{
    struct clio_error error;
    struct clio_source *source = clio_source_open(trace, &error);
    if (!source)
        trace_failed(&error);
    return source;
}

void need_cpu(const struct clio_source *source)
{
    const struct clio_trace_info *info = clio_source_info(source);
    struct cpu_host host;
    uint64_t features;
    char problem[CPU_NAMES_MAX + 100];
    cpu_host_ask(&host);
    if (!cpu_stands_in((int)info->cpu_level, info->cpu_features, &host, &features, problem, sizeof problem))
        die("%s cannot be replayed here: %s", clio_source_path(source), problem);
}

const char *only_trace(int argc, char **argv)
{
    int at = 1;
    if (at < argc && strcmp(argv[at], "--") == 0)
        at++;
    else if (at < argc && argv[at][0] == '-')
        usage("%s: unknown option %s", argv[0], argv[at]);
    if (argc > at + 1)
        usage("%s: one trace at a time, not also %s", argv[0], argv[at + 1]);
    return argv[at];
}

static bool is_plain(const char *word)
{
    const char *also = "%+,-./:=@_";
    if (!*word)
        return false;
    for (; *word; word++)
        if (!(*word >= '0' && *word <= '9') && !(*word >= 'a' && *word <= 'z') &&
            !(*word >= 'A' && *word <= 'Z') && !strchr(also, *word))
            return false;
    return true;
}

static bool has_control(const char *word)
{
    for (; *word; word++)
        if ((unsigned char)*word < 0x20 || *word == 0x7f)
            return true;
    return false;
}

/* A word in the form of $'...', which keeps control characters off the terminal. */
static void put_escaped(FILE *out, const char *word)
{
    fputs("$'", out);
    for (; *word; word++)
        if ((unsigned char)*word < 0x20 || *word == 0x7f)
            fprintf(out, "\\%03o", (unsigned char)*word);
        else
            fprintf(out, *word == '\'' || *word == '\\' ? "\\%c" : "%c", *word);
    putc('\'', out);
}

static void put_quoted(FILE *out, const char *word)
{
    putc('\'', out);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", out);
        else
            putc(*word, out);
    putc('\'', out);
}

char *command_text(int argc, const char *const *argv)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    for (int i = 0; out && i < argc; i++) {
        if (i)
            putc(' ', out);
        if (is_plain(argv[i]))
            fputs(argv[i], out);
        else if (has_control(argv[i]))
            put_escaped(out, argv[i]);
        else
            put_quoted(out, argv[i]);
    }
    if (!out || fclose(out) != 0)
        die("out of memory");
    return text;
}

const char *end_text(const struct clio_space_info *space, bool live, char *text, size_t size)
{
    char name[32];
    switch (space->end) {
    case CLIO_END_NONE:
        snprintf(text, size, "%s", live ? "alive" : "killed, and the recorder too");
        break;
    case CLIO_END_EXIT:
        snprintf(text, size, "exited with status %d", space->status);
        break;
    case CLIO_END_SIGNAL:
        snprintf(text, size, "killed by %s", signal_name(space->status, name));
        break;
    case CLIO_END_EXEC:
        if (space->status)
            snprintf(text, size, "became space %d", space->status);
        else
            snprintf(text, size, "became an unrecorded program");
        break;
    default:
        snprintf(text, size, "%s", *space->end_text ? space->end_text : end_name(space->end));
    }
    return text;
}

const char *origin_name(enum clio_origin origin)
{
    static const char *const names[] = {"unknown", "root", "fork", "exec"};
    return names[origin];
}

const char *end_name(enum clio_end end)
{
    static const char *const names[] = {"none",   "exit",        "signal",   "exec",
                                        "killed", "unsupported", "recorder", "internal"};
    return names[end];
}

const char *time_text(uint64_t ns, char text[32])
{
    time_t seconds = (time_t)(ns / 1000000000u);
    struct tm tm;
    if (!localtime_r(&seconds, &tm) || !strftime(text, 32, "%Y-%m-%d %H:%M:%S", &tm))
        snprintf(text, 32, "?");
    return text;
}

const char *size_text(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1000;
    snprintf(text, 32, unit && value < 10 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

struct disk_use disk_use(int dir, const char *path)
{
    struct disk_use use = {0};
    int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return use;
    }
    for (struct dirent *entry; (entry = readdir(d));) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        use.bytes += (uint64_t)st.st_blocks * 512;
        use.files += !S_ISDIR(st.st_mode);
        if (S_ISDIR(st.st_mode)) {
            struct disk_use below = disk_use(dirfd(d), entry->d_name);
            use.bytes += below.bytes;
            use.files += below.files;
        }
    }
    closedir(d);
    return use;
}

json_t *text_json(const char *text)
{
    json_t *json = json_string(text);
    if (json)
        return json;
    /* Some bytes are no UTF-8: keep ASCII. */
    char *copy = NULL;
    size_t size;
    FILE *out = open_memstream(&copy, &size);
    for (; out && *text; text++)
        if ((unsigned char)*text < 0x80)
            putc(*text, out);
        else
            fputs("\xef\xbf\xbd", out);
    if (!out || fclose(out) != 0)
        die("out of memory");
    json = json_string(copy);
    free(copy);
    return json;
}
