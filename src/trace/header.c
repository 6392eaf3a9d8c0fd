/* header.c: see header.h. */
#include "trace/header.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "trace/fault.h"
#include "trace/record.h"

enum { HEADER_MAX = 16 << 20, CHECKSUM_LINE = sizeof "checksum: 0123456789abcdef\n" - 1 };
#define FIRST_LINE "clio trace "

/* ---- identity ---- */

void trace_identity_text(const uint8_t identity[16], char text[37])
{
    char *p = text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *p++ = '-';
        p += sprintf(p, "%02x", identity[i]);
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool trace_identity_parse(const char *text, uint8_t identity[16])
{
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            if (*text++ != '-')
                return false;
        int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);
        if (low < 0)
            return false;
        identity[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    return *text == 0;
}

/* ---- writing ---- */

/* Writes `key: value`, with control characters, DEL and % as %XX. */
static void put(FILE *out, const char *key, const char *value)
{
    fprintf(out, "%s: ", key);
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if (*p < 0x20 || *p == 0x7f || *p == '%')
            fprintf(out, "%%%02X", *p);
        else
            putc(*p, out);
    putc('\n', out);
}

static void put_start(FILE *out, uint64_t start_ns)
{
    time_t seconds = (time_t)(start_ns / 1000000000u);
    struct tm tm;
    char text[64];
    gmtime_r(&seconds, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    put(out, "start", text);
    fprintf(out, "start-ns: %" PRIu64 "\n", start_ns);
}

char *trace_header_text(const struct clio_trace_info *info, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    if (!out)
        return NULL;
    fprintf(out, FIRST_LINE "%d\n", TRACE_FORMAT_VERSION);
    put(out, "identity", info->identity);
    for (int bit = 0; bit < 64; bit++)
        if (info->features >> bit & 1)
            fprintf(out, "feature: %d%s\n", bit, bit == TRACE_FEATURE_CPU ? " guest-cpu" : "");
    fprintf(out, "cpu-level: %u\n", info->cpu_level);
    if (info->cpu_features)
        put(out, "cpu-features", info->cpu_features);
    put_start(out, info->start_ns);
    put(out, "host", info->host);
    put(out, "kernel", info->kernel);
    put(out, "cwd", info->cwd);
    for (int i = 0; i < info->argc; i++)
        put(out, "arg", info->argv[i]);
    if (fflush(out) == 0 && text)
        fprintf(out, "checksum: %016" PRIx64 "\n", XXH64(text, *size, 0));
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- reading ---- */

/* The whole file, terminated by NUL; NULL with *error. */
static char *slurp(int fd, const char *path, size_t *size, struct clio_error *error)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        fault_system(error, errno, "reading %s/trace", path);
        return NULL;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > HEADER_MAX) {
        fault_set(error, CLIO_FAULT_DAMAGED, "%s/trace: not the header of a trace", path);
        return NULL;
    }
    char *text = malloc((size_t)st.st_size + 1);
    ssize_t n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;
    if (n < 0) {
        fault_system(error, text ? errno : ENOMEM, "reading %s/trace", path);
        free(text);
        return NULL;
    }
    text[n] = 0;
    *size = (size_t)n;
    return text;
}

static bool check_version(const char *text, size_t size, const char *path, struct clio_error *error)
{
    if (size == 0)
        return fault_set(error, CLIO_FAULT_DAMAGED,
                         "%s/trace: empty: the recording was stopped before it began", path);
    if (strncmp(text, FIRST_LINE, sizeof FIRST_LINE - 1) != 0)
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s/trace: not the header of a trace", path);
    char *end;
    unsigned long version = strtoul(text + sizeof FIRST_LINE - 1, &end, 10);
    if (*end != '\n')
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s/trace: not the header of a trace, or cut short",
                         path);
    if (version != TRACE_FORMAT_VERSION)
        return fault_set(error, CLIO_FAULT_VERSION,
                         "%s/trace: format version %lu, this clio reads version %d", path, version,
                         TRACE_FORMAT_VERSION);
    return true;
}

static bool check_sum(char *text, size_t size, const char *path, struct clio_error *error)
{
    char *last = text + size - CHECKSUM_LINE;
    if (size < CHECKSUM_LINE || strncmp(last, "checksum: ", 10) != 0 || text[size - 1] != '\n' ||
        (last > text && last[-1] != '\n'))
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s/trace: cut short or damaged: it has no checksum line",
                         path);
    char expected[CHECKSUM_LINE + 1];
    snprintf(expected, sizeof expected, "checksum: %016" PRIx64 "\n", XXH64(text, size - CHECKSUM_LINE, 0));
    if (memcmp(last, expected, CHECKSUM_LINE) != 0)
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s/trace: fails its checksum", path);
    *last = 0;
    return true;
}

/* Decodes %XX in place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++) {
        if (*p == '%' && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
            *to++ = (char)(hex_digit(p[1]) << 4 | hex_digit(p[2]));
            p += 2;
        } else
            *to++ = *p;
    }
    *to = 0;
}

struct parse {
    struct trace_header *header;
    const char *path;
    const char **argv;
    bool identity;
};

/* `value` is "BIT" or "BIT NAME". */
static bool parse_feature(struct parse *p, const char *value, struct clio_error *error)
{
    char *name;
    unsigned long bit = strtoul(value, &name, 10);
    if (name == value || bit > 63)
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s/trace: bad feature `%s`", p->path, value);
    if (bit < 32 && bit != TRACE_FEATURE_CPU)
        return fault_set(error, CLIO_FAULT_VERSION, "%s/trace: needs feature %s, which this clio lacks",
                         p->path, value);
    p->header->info.features |= 1ull << bit;
    return true;
}

/* Keys that are not known are optional by definition. */
static bool parse_line(struct parse *p, const char *key, char *value, struct clio_error *error)
{
    struct clio_trace_info *info = &p->header->info;
    unescape(value);
    if (strcmp(key, "identity") == 0) {
        p->identity = trace_identity_parse(value, p->header->identity);
        if (p->identity)
            memcpy(info->identity, value, sizeof info->identity);
    } else if (strcmp(key, "feature") == 0)
        return parse_feature(p, value, error);
    else if (strcmp(key, "cpu-level") == 0)
        info->cpu_level = (uint32_t)strtoul(value, NULL, 10);
    else if (strcmp(key, "cpu-features") == 0)
        info->cpu_features = value;
    else if (strcmp(key, "start-ns") == 0)
        info->start_ns = strtoull(value, NULL, 10);
    else if (strcmp(key, "host") == 0)
        info->host = value;
    else if (strcmp(key, "kernel") == 0)
        info->kernel = value;
    else if (strcmp(key, "cwd") == 0)
        info->cwd = value;
    else if (strcmp(key, "arg") == 0)
        p->argv[info->argc++] = value;
    return true;
}

static bool parse(struct parse *p, char *text, struct clio_error *error)
{
    char *save = NULL;
    strtok_r(text, "\n", &save); /* the first line */
    for (char *line; (line = strtok_r(NULL, "\n", &save));) {
        char *colon = strstr(line, ": ");
        if (!colon)
            return fault_set(error, CLIO_FAULT_DAMAGED, "%s/trace: line without a key: `%.60s`", p->path,
                             line);
        *colon = 0;
        if (!parse_line(p, line, colon + 2, error))
            return false;
    }
    if (!p->identity)
        return fault_set(error, CLIO_FAULT_DAMAGED, "%s/trace: no identity", p->path);
    return true;
}

static size_t count_lines(const char *text)
{
    size_t n = 1;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Memory of a header: argv, then the text it points into. */
static bool parse_text(struct trace_header *header, char *text, size_t size, const char *path,
                       struct clio_error *error)
{
    size_t slots = count_lines(text) + 1;
    char *memory = calloc(1, slots * sizeof(char *) + size + 1);
    if (!memory)
        return fault_system(error, ENOMEM, "reading %s/trace", path);
    struct parse p = {.header = header, .path = path, .argv = (const char **)memory};
    char *copy = memory + slots * sizeof(char *);
    memcpy(copy, text, size + 1);
    header->memory = memory;
    header->info =
        (struct clio_trace_info){.version = TRACE_FORMAT_VERSION, .host = "", .kernel = "", .cwd = ""};
    header->info.argv = p.argv;
    if (parse(&p, copy, error))
        return true;
    trace_header_free(header);
    return false;
}

bool trace_header_read(struct trace_header *header, int dir, const char *path, struct clio_error *error)
{
    *header = (struct trace_header){0};
    int fd = openat(dir, "trace", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return fault_set(error, CLIO_FAULT_MISSING, "%s: not a trace: it has no file `trace`", path);
    if (fd < 0)
        return fault_system(error, errno, "opening %s/trace", path);
    size_t size;
    char *text = slurp(fd, path, &size, error);
    close(fd);
    bool good = text && check_version(text, size, path, error) && check_sum(text, size, path, error) &&
                parse_text(header, text, strlen(text), path, error);
    free(text);
    return good;
}

void trace_header_free(struct trace_header *header)
{
    free(header->memory);
    *header = (struct trace_header){0};
}
