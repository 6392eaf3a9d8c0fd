/* test_trace_locate.c: the trace home, names of new traces, `latest`, and what a trace argument means. */
#include "trace_fixture.h"

#include "trace/locate.h"

static char base[256];

static char *below(const char *name)
{
    static char text[4][400];
    static int next;
    char *to = text[next++ % 4];
    snprintf(to, sizeof text[0], "%s%s", base, name);
    return to;
}

static int set_up(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(base, sizeof base, "%s/clio-locate-%d", tmp ? tmp : "/tmp", (int)getpid());
    fixture_remove(base);
    return mkdir(base, 0700);
}

static int tear_down(void **state)
{
    (void)state;
    fixture_remove(base);
    return 0;
}

static void is_home(const char *expected)
{
    struct clio_error error;
    char *home = trace_home(&error);
    assert_non_null(home);
    assert_string_equal(home, expected);
    free(home);
}

static void test_home(void **state)
{
    (void)state;
    struct clio_error error;
    setenv("CLIO_TRACE_DIR", "/a", 1);
    setenv("XDG_DATA_HOME", "/b", 1);
    setenv("HOME", "/c", 1);
    is_home("/a");
    setenv("CLIO_TRACE_DIR", "", 1);
    is_home("/b/clio");
    unsetenv("XDG_DATA_HOME");
    is_home("/c/.local/share/clio");
    unsetenv("HOME");
    assert_null(trace_home(&error));
    assert_int_equal(error.fault, CLIO_FAULT_ARGUMENT);
}

static void is_new(const char *program, const char *name)
{
    struct clio_error error;
    char *path = trace_new_path(program, &error);
    assert_non_null(path);
    assert_string_equal(path, below(name));
    free(path);
}

static void test_names(void **state)
{
    (void)state;
    struct clio_error error;
    setenv("CLIO_TRACE_DIR", below("/home/of/traces"), 1);
    is_new("/usr/bin/ls", "/home/of/traces/ls-0");
    assert_int_equal(mkdir(below("/home/of/traces/ls-0"), 0700), 0);
    is_new("ls", "/home/of/traces/ls-1");
    is_new("../..", "/home/of/traces/program-0");
    is_new("/", "/home/of/traces/program-0");
    is_new("", "/home/of/traces/program-0");
    is_new("./.hidden", "/home/of/traces/hidden-0");
    assert_int_equal(symlink("nowhere", below("/home/of/traces/ls-1")), 0);
    is_new("ls", "/home/of/traces/ls-2");
    setenv("CLIO_TRACE_DIR", "/proc/none", 1);
    assert_null(trace_new_path("ls", &error));
    assert_non_null(strstr(error.text, "/proc/none"));
}

static void resolves(const char *argument, const char *name)
{
    struct clio_error error;
    char *path = trace_resolve(argument, &error);
    assert_non_null(path);
    assert_string_equal(path, name);
    free(path);
}

static void does_not(const char *argument, const char *text)
{
    struct clio_error error;
    assert_null(trace_resolve(argument, &error));
    assert_non_null(strstr(error.text, text));
}

static void test_resolve(void **state)
{
    (void)state;
    struct clio_error error;
    setenv("CLIO_TRACE_DIR", below("/traces"), 1);
    does_not(NULL, "no trace yet");
    does_not("latest", "no trace yet");
    does_not("ls-0", "no such trace");
    does_not("", "empty name");
    assert_int_equal(mkdir(below("/traces"), 0700), 0);
    assert_int_equal(mkdir(below("/traces/ls-0"), 0700), 0);
    assert_int_equal(mkdir(below("/elsewhere"), 0700), 0);
    resolves("ls-0", below("/traces/ls-0"));
    resolves("/no/such/path", "/no/such/path"); /* a path is taken as it is: opening it says what is wrong */
    assert_true(trace_set_latest(below("/traces/ls-0"), &error));
    resolves(NULL, below("/traces/ls-0"));
    assert_true(trace_set_latest(below("/elsewhere"), &error));
    resolves("latest", below("/elsewhere"));
    assert_int_equal(rmdir(below("/elsewhere")), 0);
    does_not(NULL, "latest trace was removed");
    assert_false(trace_set_latest(below("/gone"), &error));
    does_not(NULL, "latest trace was removed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_home),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resolve, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
