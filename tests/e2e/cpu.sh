#!/usr/bin/env bash
# The processor that a guest sees: how it is chosen, recorded, refused, and checked before a replay.
# CLIO_TEST_HOST_CPU hides features of this machine from clio's commands.
. "$(dirname "$0")/lib.sh"

# refused WHAT STATUS TEXT COMMAND...
refused() {
    local what=$1 want=$2 text=$3 got
    shift 3
    "$@" >refused.out 2>&1
    got=$?
    [ "$got" = "$want" ] && said refused.out "$text" >/dev/null
    verdict $? "$what" || { echo "status $got, wanted $want"; cat refused.out; }
}

refused "a level that is none" 2 "the levels are v1" "$CLIO" record --cpu=v5 -o none.trace -- /bin/true
refused "a feature that is none" 2 "warp is no feature" "$CLIO" record --cpu=v3+warp -o none.trace -- /bin/true
refused "a feature of a higher level" 2 "vaes needs level v3" "$CLIO" record --cpu=v2+vaes -o none.trace -- /bin/true
refused "a level that the machine lacks" 3 "processor lacks fma,movbe,.*avx2" \
    env CLIO_TEST_HOST_CPU=v2 "$CLIO" record --cpu=v3 -o none.trace -- /bin/true
refused "a feature that the machine lacks" 3 "processor lacks sha" \
    env CLIO_TEST_HOST_CPU=v2 "$CLIO" record --cpu=v2+sha -o none.trace -- /bin/true
check "nothing is left of those" test ! -e none.trace

guest_cpu() { "$CLIO" info "$1" | sed -n 's/^guest CPU *//p'; }

CLIO_TEST_HOST_CPU=v2-aes-pclmulqdq "$CLIO" record -o v2.trace -- /bin/true
check "without --cpu the best that the machine has" test "$(guest_cpu v2.trace)" = "x86-64-v2 and rdrand,rdseed,rdpid"
check "it replays there" env CLIO_TEST_HOST_CPU=v2-aes-pclmulqdq "$CLIO" replay -a v2.trace
"$CLIO" record --cpu=v2+aes -o aes.trace -- /bin/true
refused "not where a feature is missing" 3 "x86-64-v2; this machine's lacks aes" \
    env CLIO_TEST_HOST_CPU=v2-aes "$CLIO" replay -a aes.trace
"$CLIO" record --cpu=v1 -o v1.trace -- /bin/true
check "v1 has nothing beyond" test "$(guest_cpu v1.trace)" = x86-64-v1
check "JSON names level and features" grep -q '"cpu_features": "",' <("$CLIO" info --json v1.trace)

if "$CLIO" record --cpu=v3 -o v3.trace -- /bin/true 2>v3.err; then
    refused "nor where a level is" 3 "lacks fma" env CLIO_TEST_HOST_CPU=v2 "$CLIO" replay -a v3.trace
    refused "nor is a chronicle built there" 3 "lacks fma" env CLIO_TEST_HOST_CPU=v2 "$CLIO" chronicle v3.trace -o v3.db
    check "other commands read it" env CLIO_TEST_HOST_CPU=v2 "$CLIO" dump v3.trace >/dev/null
else
    skip "a v3 trace on a lesser machine" "$(cat v3.err)"
fi

# with FILE SED: a copy of v1.trace whose header is changed and has a right checksum
with() {
    rm -rf "$1" && cp -r v1.trace "$1" && chmod u+w "$1/trace"
    sed "/^checksum: /d; $2" v1.trace/trace >header
    { cat header && ./checksum <header; } >"$1/trace"
}
cat >checksum.c <<'END'
#define XXH_INLINE_ALL
#include <stdio.h>
#include <xxhash.h>
int main(void)
{
    static char text[1 << 16];
    size_t n = fread(text, 1, sizeof text, stdin);
    return printf("checksum: %016llx\n", (unsigned long long)XXH64(text, n, 0)) < 0;
}
END
if gcc -O1 -o checksum checksum.c; then
    with later.trace 's/^cpu-features: .*/cpu-features: warp/'
    refused "a feature of a later clio" 3 "has warp, which this clio does not know" "$CLIO" replay -a later.trace
    with level.trace 's/^cpu-level: .*/cpu-level: 7/'
    refused "a level of a later clio" 3 "of level 7" "$CLIO" replay -a level.trace
else
    verdict 1 "checksum.c"
fi
check "older readers refuse the trace by name" grep -q '^feature: 0 guest-cpu$' v1.trace/trace

# The dynamic linker's first frame lies within 3 KB of the stack's top when there is no environment.
for level in v1 v3; do
    [ $level = v1 ] || [ -d v3.trace ] || continue
    rm -rf empty.trace
    env -i "$CLIO" record --cpu=$level -o empty.trace -- /bin/ls / >empty.out 2>empty.err
    check "an empty environment, $level" same_file empty.out <(ls /)
    check "and its replay, $level" same_file empty.out <("$CLIO" replay -a empty.trace)
done

# ---- chronicles of v4: what an opmask selects was stored, nothing else
cat >masks.c <<'END'
#include <immintrin.h>
#include <signal.h>
#include <stdio.h>
char a[512];
__attribute__((target("avx512f"))) int main(int argc, char **argv)
{
    __m512i v = _mm512_set1_epi32(0x11223344);
    _mm512_mask_storeu_epi32(a, 0x0005, v);
    _mm512_mask_compressstoreu_epi32(a + 128, 0x8400, v);
    if (argc > 1)
        _mm512_i32scatter_epi32(a, _mm512_set1_epi32(1), v, 4);
    printf("%lx\n", (unsigned long)a);
    return 0;
}
END
gcc -O1 -w -o masks masks.c || verdict 1 "masks.c"
if "$CLIO" record --cpu=v4 -o masks.trace -- ./masks >masks.out 2>masks.err; then
    "$CLIO" chronicle masks.trace -o masks.db >/dev/null
    read -r a <masks.out
    written() { "$CLIO" query masks.db last-write "0x$1+4" 2>&1 | grep -q 'last written.* by a store'; }
    at() { printf %x $((0x$a + $1)); }
    check "the chronicle has what the mask selects" written "$(at 8)"
    check "and nothing else" eval '! written "$(at 4)"'
    check "a compressing store fills from its beginning" written "$(at 132)"
    check "and no more" eval '! written "$(at 136)"'
    "$CLIO" record --cpu=v4 -o scatter.trace -- ./masks scatter >/dev/null
    refused "a scattered store is refused by name" 3 "scatters a vector" "$CLIO" chronicle scatter.trace -o scatter.db
else
    skip "chronicles of v4" "$(sed 's/^clio: //' masks.err)"
fi
exit 0
