#!/usr/bin/env bash
#
# tests/golden/make.sh: makes the golden trace of the format version that ./clio writes, vN.tar.gz, with what is expected of it in
# vN/: `out` (output), `ps`, `dump`, `crash` and `last-write` (answers of a chronicle). Run from anywhere, once for each
# format that is released; what is there is never made anew, since later versions must read what earlier ones wrote.

set -eu
here=$(cd "$(dirname "$0")" && pwd)
CLIO=${CLIO:-$here/../../clio}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C TZ=UTC CLIO_TRACE_DIR=$work/home
cd "$work"

gcc -O1 -g -static -nostdlib -no-pie -fno-pie -fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables \
    -ffile-prefix-map="$here/src"=. -Wl,--build-id=none -Wall -Wextra -o golden "$here/src/golden.c"
status=0
env -i HOME=/ "$CLIO" record --cpu=v1 -o golden.trace -- ./golden >out || status=$?
[ "$status" = 139 ] || { echo "the program ended with $status" >&2; exit 1; }

version=$(sed -n '1s/^clio trace //p' golden.trace/trace)
expected=$here/v$version
[ ! -e "$expected.tar.gz" ] || { echo "$expected.tar.gz exists; golden traces are kept" >&2; exit 1; }
mkdir -p "$expected"
mv out "$expected/out"
. "$here/ask.sh"
ask golden.trace "$expected"
tar --sort=name --owner=0 --group=0 --exclude=golden.trace/rings/control -c golden.trace | gzip -9n >"$expected.tar.gz"
ls -l "$expected.tar.gz" "$expected"
