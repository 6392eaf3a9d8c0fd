/*
 * symbols.c: symbols of mapped ELF files through libelf and libdw; see symbols.h.
 *
 * Each file is opened once and kept: its program headers (to turn a mapped address into the address as
 * linked), its function and object symbols sorted by address, and its Dwarf handle.
 */
#include "symbols/symbols.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct symbol {
    uint64_t value, size;
    const char *name;
    unsigned char type, binding;
};

struct object { /* an ELF file */
    struct object *next;
    char *name; /* in files/ */
    int fd, debug_fd;
    Elf *elf, *debug_elf; /* NULL: not there */
    Dwarf *dwarf;
    GElf_Phdr *loads;
    size_t nloads;
    struct symbol *symbols;
    size_t nsymbols, room;
};

struct symbols {
    char *directory;
    const struct symbols_map *maps; /* the caller's */
    size_t nmaps;
    struct object *objects;
};

struct symbols *symbols_open(const char *directory, const struct symbols_map *maps, size_t nmaps)
{
    struct symbols *s = calloc(1, sizeof *s);
    elf_version(EV_CURRENT);
    if (!s)
        return NULL;
    s->directory = strdup(directory);
    s->maps = maps;
    s->nmaps = nmaps;
    if (s->directory)
        return s;
    free(s);
    return NULL;
}

static void object_close(struct object *o)
{
    if (o->dwarf)
        dwarf_end(o->dwarf);
    elf_end(o->debug_elf);
    elf_end(o->elf);
    if (o->fd >= 0)
        close(o->fd);
    if (o->debug_fd >= 0)
        close(o->debug_fd);
    free(o->loads);
    free(o->symbols);
    free(o->name);
    free(o);
}

void symbols_close(struct symbols *s)
{
    if (!s)
        return;
    for (struct object *o = s->objects, *next; o; o = next) {
        next = o->next;
        object_close(o);
    }
    free(s->directory);
    free(s);
}

/* ---- opening a file ---- */

static Elf *open_elf(const char *path, int *fd)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return NULL;
    Elf *elf = elf_begin(*fd, ELF_C_READ_MMAP, NULL);
    if (elf && elf_kind(elf) == ELF_K_ELF)
        return elf;
    elf_end(elf);
    close(*fd);
    *fd = -1;
    return NULL;
}

static void load_headers(struct object *o)
{
    size_t n;
    if (elf_getphdrnum(o->elf, &n) || !(o->loads = calloc(n + 1, sizeof *o->loads)))
        return;
    for (size_t i = 0; i < n; i++) {
        GElf_Phdr *p = &o->loads[o->nloads];
        if (gelf_getphdr(o->elf, (int)i, p) && p->p_type == PT_LOAD)
            o->nloads++;
    }
}

/* The file with separate debug information, by build-id. */
static void open_debug_file(struct object *o)
{
    const void *id;
    ssize_t n = dwelf_elf_gnu_build_id(o->elf, &id);
    char path[PATH_MAX] = "/usr/lib/debug/.build-id/";
    size_t at = strlen(path);
    if (n < 2 || n > 64)
        return;
    for (ssize_t i = 0; i < n; i++)
        at += (size_t)sprintf(path + at, i == 1 ? "/%02x" : "%02x", ((const uint8_t *)id)[i]);
    strcpy(path + at, ".debug");
    o->debug_elf = open_elf(path, &o->debug_fd);
}

static void add_symbol(struct object *o, const GElf_Sym *sym, const char *name)
{
    unsigned char type = GELF_ST_TYPE(sym->st_info);
    bool wanted = type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_OBJECT || type == STT_NOTYPE;
    if (!wanted || !name || !*name || sym->st_shndx == SHN_UNDEF || sym->st_shndx == SHN_ABS)
        return;
    if (o->nsymbols == o->room) {
        size_t room = o->room ? 2 * o->room : 1024;
        struct symbol *p = realloc(o->symbols, room * sizeof *p);
        if (!p)
            return;
        o->symbols = p;
        o->room = room;
    }
    o->symbols[o->nsymbols++] =
        (struct symbol){sym->st_value, sym->st_size, name, type, GELF_ST_BIND(sym->st_info)};
}

static bool load_table(struct object *o, Elf *elf, GElf_Word wanted)
{
    bool found = false;
    for (Elf_Scn *section = NULL; elf && (section = elf_nextscn(elf, section));) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header) || header.sh_type != wanted || !header.sh_entsize)
            continue;
        Elf_Data *data = elf_getdata(section, NULL);
        size_t n = data ? data->d_size / header.sh_entsize : 0;
        for (size_t i = 0; i < n; i++) {
            GElf_Sym sym;
            if (gelf_getsym(data, (int)i, &sym))
                add_symbol(o, &sym, elf_strptr(elf, header.sh_link, sym.st_name));
        }
        found = found || n > 1;
    }
    return found;
}

/* By address; of one address the best name last: with a type after those without, global after local. */
static int by_value(const void *a, const void *b)
{
    const struct symbol *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    int typed = (x->type != STT_NOTYPE) - (y->type != STT_NOTYPE);
    int global = (x->binding == STB_GLOBAL) - (y->binding == STB_GLOBAL);
    return typed ? typed : global ? global : strcmp(y->name, x->name);
}

static void load_symbols(struct object *o)
{
    if (!load_table(o, o->elf, SHT_SYMTAB) && !load_table(o, o->debug_elf, SHT_SYMTAB))
        load_table(o, o->elf, SHT_DYNSYM);
    if (o->nsymbols)
        qsort(o->symbols, o->nsymbols, sizeof *o->symbols, by_value);
}

static bool has_debug_info(Elf *elf)
{
    size_t names;
    if (elf_getshdrstrndx(elf, &names))
        return false;
    for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
        GElf_Shdr header;
        const char *name = gelf_getshdr(section, &header) ? elf_strptr(elf, names, header.sh_name) : NULL;
        if (name && (!strcmp(name, ".debug_info") || !strcmp(name, ".zdebug_info")))
            return true;
    }
    return false;
}

/* The object of a file, opened at the first call; NULL without memory. */
static struct object *object_of(struct symbols *s, const char *name)
{
    char path[PATH_MAX];
    for (struct object *o = s->objects; o; o = o->next)
        if (!strcmp(o->name, name))
            return o;
    struct object *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->fd = o->debug_fd = -1;
    o->name = strdup(name);
    o->next = s->objects;
    if (!o->name) {
        free(o);
        return NULL;
    }
    s->objects = o;
    if (snprintf(path, sizeof path, "%s/files/%s", s->directory, name) >= (int)sizeof path)
        return o;
    o->elf = open_elf(path, &o->fd);
    if (!o->elf)
        return o;
    load_headers(o);
    open_debug_file(o);
    load_symbols(o);
    if (has_debug_info(o->elf))
        o->dwarf = dwarf_begin_elf(o->elf, DWARF_C_READ, NULL);
    else if (o->debug_elf)
        o->dwarf = dwarf_begin_elf(o->debug_elf, DWARF_C_READ, NULL);
    return o;
}

/* ---- addresses ---- */

enum { PAGE = 4096 };

/* What would have to be added to linked addresses if the map showed this segment; false when it cannot. */
static bool bias_with(const GElf_Phdr *p, const struct symbols_map *map, uint64_t *bias)
{
    uint64_t from = p->p_offset & ~(uint64_t)(PAGE - 1);
    *bias = map->start - map->offset + p->p_offset - p->p_vaddr;
    return p->p_filesz && map->offset >= from && map->offset < p->p_offset + p->p_filesz;
}

/* How many maps of the file some segment explains with this bias. */
static size_t votes_for(const struct symbols *s, const struct object *o, uint64_t bias)
{
    size_t votes = 0;
    for (size_t m = 0; m < s->nmaps; m++)
        for (size_t i = 0; i < o->nloads && !strcmp(s->maps[m].file, o->name); i++) {
            uint64_t other;
            if (bias_with(&o->loads[i], &s->maps[m], &other) && other == bias) {
                votes++;
                break;
            }
        }
    return votes;
}

/*
 * What to add to a linked address to give a mapped one. Two segments may share a page of the file, so that a
 * map fits both: then the other maps of the file decide.
 */
static bool bias_of(const struct symbols *s, const struct object *o, const struct symbols_map *map,
                    uint64_t *bias)
{
    size_t best = 0;
    bool found = false;
    for (size_t i = 0; i < o->nloads; i++) {
        uint64_t candidate;
        if (!bias_with(&o->loads[i], map, &candidate))
            continue;
        size_t votes = votes_for(s, o, candidate);
        if (found && votes <= best)
            continue;
        best = votes;
        *bias = candidate;
        found = true;
    }
    return found;
}

static const struct symbol *symbol_at(const struct object *o, uint64_t value)
{
    size_t low = 0, high = o->nsymbols;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (o->symbols[middle].value <= value)
            low = middle + 1;
        else
            high = middle;
    }
    while (low-- > 0) {
        const struct symbol *s = &o->symbols[low];
        bool code = s->type == STT_FUNC || s->type == STT_GNU_IFUNC;
        if (code && (value - s->value < s->size || !s->size))
            return s;
        if (value - s->value > 1 << 20)
            return NULL;
    }
    return NULL;
}

/* ---- lines and inlined calls ---- */

static bool find_unit(Dwarf *dwarf, uint64_t value, Dwarf_Die *unit)
{
    if (dwarf_addrdie(dwarf, value, unit))
        return true;
    Dwarf_CU *cu = NULL;
    Dwarf_Die type;
    uint8_t kind;
    while (dwarf_get_units(dwarf, cu, &cu, NULL, &kind, unit, &type) == 0)
        if (kind == DW_UT_compile && dwarf_haspc(unit, value) == 1)
            return true;
    return false;
}

static const char *last_part(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

/* The file and line from which an inlined function was called. */
static void call_site(Dwarf_Die *unit, Dwarf_Die *inlined, struct symbols_frame *frame)
{
    Dwarf_Attribute attribute;
    Dwarf_Word file, line;
    Dwarf_Files *files;
    size_t n;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) == 0)
        frame->line = (int)line;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) == 0 &&
        dwarf_getsrcfiles(unit, &files, &n) == 0 && file < n)
        frame->file = dwarf_filesrc(files, file, NULL, NULL);
}

static const char *name_of(Dwarf_Die *die)
{
    Dwarf_Attribute attribute;
    return dwarf_formstring(dwarf_attr_integrate(die, DW_AT_name, &attribute));
}

static void add_frames(struct object *o, uint64_t value, struct symbols_place *place)
{
    Dwarf_Die unit, *scopes = NULL;
    if (!o->dwarf || !find_unit(o->dwarf, value, &unit))
        return;
    struct symbols_frame *frame = &place->frames[0];
    Dwarf_Line *line = dwarf_getsrc_die(&unit, value);
    if (line) {
        dwarf_lineno(line, &frame->line);
        frame->file = dwarf_linesrc(line, NULL, NULL);
    }
    int n = dwarf_getscopes(&unit, value, &scopes);
    for (int i = 0; i < n && place->count < SYMBOLS_FRAMES; i++) {
        int tag = dwarf_tag(&scopes[i]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
            continue;
        frame->function = name_of(&scopes[i]);
        if (tag == DW_TAG_subprogram)
            break;
        frame = &place->frames[place->count++];
        call_site(&unit, &scopes[i], frame);
    }
    free(scopes);
}

void symbols_lookup(struct symbols *s, const struct symbols_map *map, uint64_t address,
                    struct symbols_place *place)
{
    uint64_t bias;
    memset(place, 0, sizeof *place);
    place->count = 1;
    place->module = last_part(map->path);
    place->module_offset = address - map->start + map->offset;
    struct object *o = object_of(s, map->file);
    if (!o || !o->elf || !bias_of(s, o, map, &bias))
        return;
    uint64_t value = place->module_offset = address - bias;
    add_frames(o, value, place);
    const struct symbol *symbol = symbol_at(o, value);
    if (!symbol)
        return;
    struct symbols_frame *outer = &place->frames[place->count - 1];
    if (!outer->function)
        outer->function = symbol->name;
    place->function_offset = value - symbol->value;
}

bool symbols_find(struct symbols *s, const struct symbols_map *map, const char *name, uint64_t *address,
                  uint64_t *size)
{
    uint64_t bias;
    struct object *o = object_of(s, map->file);
    const struct symbol *best = NULL;
    if (!o || !o->elf || !bias_of(s, o, map, &bias))
        return false;
    for (size_t i = 0; i < o->nsymbols; i++) {
        const struct symbol *c = &o->symbols[i];
        if (!strcmp(c->name, name) && (!best || c->binding == STB_GLOBAL))
            best = c;
    }
    if (!best)
        return false;
    *address = best->value + bias;
    *size = best->size;
    return true;
}

size_t symbols_bytes(struct symbols *s, const struct symbols_map *map, uint64_t address, void *to,
                     size_t size)
{
    struct object *o = object_of(s, map->file);
    if (!o || o->fd < 0 || address < map->start || address >= map->end)
        return 0;
    if (size > map->end - address)
        size = map->end - address;
    ssize_t n = pread(o->fd, to, size, (off_t)(address - map->start + map->offset));
    return n > 0 ? (size_t)n : 0;
}
