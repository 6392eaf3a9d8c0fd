/* objects.c: see objects.h. */
#include "engine/memory/objects.h"

#include "base/error.h"

struct object objects[OBJECTS_MAX];

static bool in_use(const struct space *s, uint16_t number)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->vmas[i].object == number)
            return true;
    return false;
}

/* Numbers go round; one that a mapping still shows is passed over. A space has fewer mappings than there are
 * numbers. */
static uint16_t unused(const struct space *s)
{
    static uint16_t last;
    static bool wrapped;
    for (uint32_t tries = 0; tries < OBJECTS_MAX; tries++) {
        if (!++last) {
            wrapped = true;
            continue;
        }
        if (!wrapped || !in_use(s, last))
            return last;
    }
    die("the program maps more than %d files at once", OBJECTS_MAX - 1);
}

uint16_t object_of(const struct space *s, uint64_t dev, uint64_t ino)
{
    for (uint32_t i = 0; i < s->count; i++) {
        uint16_t number = s->vmas[i].object;
        if (number && objects[number].dev == dev && objects[number].ino == ino)
            return number;
    }
    uint16_t number = object_new(s);
    objects[number].dev = dev;
    objects[number].ino = ino;
    return number;
}

uint16_t object_new(const struct space *s)
{
    uint16_t number = unused(s);
    objects[number] = (struct object){0};
    return number;
}
