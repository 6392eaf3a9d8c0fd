# lib.sh: what end-to-end tests share. Sourced by tests/e2e/*.sh, which tests/run starts in an empty directory with TOP,
# BUILD and CLIO set. A test prints `ok`, `not ok` and `skip` lines.

set -u
: "${TOP:=$(cd "$(dirname "$0")/../.." && pwd)}" "${BUILD:=$TOP/build}" "${CLIO:=$TOP/clio}"
export TOP BUILD CLIO
here=$PWD
ulimit -c 0

skip() { echo "skip $1: $2"; } # skip WHAT REASON

verdict() { # verdict STATUS WHAT
    if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2"; fi
    return "$1"
}

check() { # check WHAT COMMAND...: the command's status decides
    local what=$1
    shift
    "$@"
    verdict $? "$what"
}

said() { # said FILE TEXT: FILE has one line with TEXT that starts with "clio: "
    grep -aq -- "^clio: .*$2" "$1" || { echo "wanted a line of clio with \"$2\", got:"; head -5 "$1"; return 1; }
}

same_file() { # same_file A B
    cmp -s "$1" "$2" || { echo "$1 and $2 differ:"; diff -a "$1" "$2" | head -10; return 1; }
}

without_clio() { grep -av '^clio: ' "$1" >"$1.plain"; }

# record NAME COMMAND...: in the current directory, trace NAME.trace, output NAME.out, NAME.err, status $status
record() {
    local name=$1
    shift
    rm -rf "$here/$name.trace"
    "$CLIO" record -o "$here/$name.trace" -- "$@" >"$here/$name.out" 2>"$here/$name.err"
    status=$?
}

# replays NAME [STATUS]: replay -a gives the same stdout and stderr and ends with 0
replays() {
    local name=$1 got
    (cd / && "$CLIO" replay -a "$here/$name.trace") >"$here/$name.out2" 2>"$here/$name.err2" </dev/null
    got=$?
    without_clio "$here/$name.err"
    without_clio "$here/$name.err2"
    [ "$got" = 0 ] || { echo "replay ended with status $got"; tail -5 "$here/$name.err2"; return 1; }
    same_file "$here/$name.out" "$here/$name.out2" && same_file "$here/$name.err.plain" "$here/$name.err2.plain"
}

# program NAME STATUS COMMAND...: records COMMAND in ./work, which `prepare NAME work` fills, spoils that, replays.
# STATUS is what it must end with. A COMMAND's stdin is ./stdin if that exists, else /dev/null.
program() {
    local name=$1 want=$2 stdin=/dev/null result
    shift 2
    [ -e stdin ] && stdin=$PWD/stdin
    rm -rf work && mkdir work
    prepare "$name" work
    (
        cd work || exit 1
        record "$name" "$@" <"$stdin"
        [ "$status" = "$want" ] || { echo "$name: status $status, wanted $want"; tail -5 "$here/$name.err"; exit 1; }
    )
    result=$?
    spoil work
    [ "$result" = 0 ] && { replays "$name" || result=1; }
    verdict "$result" "$name" && rm -rf "${here:?}/$name".*
}

# Changes every file below $1, then moves it away.
spoil() {
    find "$1" -type f -exec sh -c 'for f; do echo spoilt >"$f"; done' sh {} + 2>/dev/null
    rm -rf "$1"
}

prepare() { :; }
