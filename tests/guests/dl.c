/* dlopen and dlclose repeated, function pointers across libraries, lazy binding, resolvers. */
// VARIANTS: o2 nopie
// LIB: counter
// FLAGS: -ldl -lm -Wl,-z,lazy
#include "guest.h"
#include <dlfcn.h>
#include <libgen.h>
#include <math.h>

static int twice(int x)
{
    return 2 * x;
}

static int closings;
static int callback(int x)
{
    closings += x == -1;
    return x + 1;
}

int main(void)
{
    char path[4096] = "", library[4200];
    readlink("/proc/self/exe", path, sizeof path - 1);
    snprintf(library, sizeof library, "%s/libcounter.so", dirname(path));
    int bad = 0;
    for (int i = 0; i < 50; i++) {
        void *h = dlopen(library, i & 1 ? RTLD_NOW : RTLD_LAZY);
        if (!h) {
            ok(false, "dlopen: %s", dlerror());
            break;
        }
        int (*next)(void) = (int (*)(void))dlsym(h, "counter_next");
        int (*apply)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(h, "counter_apply");
        int (**hook)(int) = dlsym(h, "counter_callback");
        bad += next() != 108 || next() != 110 || apply(twice, 10) != 90;
        *hook = callback;
        bad += apply(twice, 10) != 145;
        bad += dlclose(h) != 0;
    }
    is(bad, 0, "a library loaded and unloaded 50 times, fresh each time");
    is(closings, 50, "destructors ran");
    void *m = dlopen("libm.so.6", RTLD_NOW);
    double (*f)(double) = (double (*)(double))dlsym(m, "cos");
    ok(f && f(0) == 1.0, "cos from libm");
    dlclose(m);
    ok(dlopen("libdoes-not-exist.so.9", RTLD_NOW) == NULL && dlerror(), "a library that is not there");
    Dl_info info;
    void *getpid_there = dlsym(RTLD_DEFAULT, "getpid");
    ok(dladdr(getpid_there, &info) && strstr(info.dli_fname, "libc"), "dladdr");
    return finish();
}
