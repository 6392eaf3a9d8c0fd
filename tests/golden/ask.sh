# ask.sh: ask TRACE DIR: writes what ps, dump and a chronicle of TRACE say to files in DIR. Sourced by make.sh and e2e/golden.sh.

ask() {
    "$CLIO" ps "$1" >"$2/ps"
    "$CLIO" dump "$1" >"$2/dump"
    "$CLIO" chronicle "$1" --from start --to crash -o "$2/golden.db" >/dev/null
    "$CLIO" query "$2/golden.db" crash >"$2/crash"
    "$CLIO" query "$2/golden.db" last-write planted >"$2/last-write"
    rm -f "$2/golden.db"
}
