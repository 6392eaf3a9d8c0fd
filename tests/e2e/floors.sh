#!/usr/bin/env bash
# Every file includes only from its own room and from floors below: docs/architecture.md draws them.
. "$(dirname "$0")/lib.sh"

# room: the rooms it may include from, besides itself and include/clio. The engine's floors follow, bottom up.
below() {
    case $1 in
    base | protocol) ;;
    trace | symbols) echo base ;;
    chronicle) echo base trace ;;
    store) echo base trace protocol ;;
    cmd) echo base trace protocol symbols chronicle ;;
    engine) echo base trace protocol chronicle ;;
    *) echo "unknown room $1" >&2; echo none ;;
    esac
}
floors="cpu host guest event memory translate load kernel task run"

# what FILE includes, as room/... paths
includes() { sed -n 's|^#include "\(.*\)"|\1|p' "$1"; }

allowed() { # allowed TARGET ROOM ALLOWED...
    local target=$1 room
    shift
    for room; do [ "$target" = "$room" ] && return; done
    return 1
}

wrong=0
up() { echo "$1 includes $2"; wrong=$((wrong + 1)); }

for file in "$TOP"/src/*/*.[chS]; do
    room=$(basename "$(dirname "$file")")
    [ "$room" = engine ] && continue # main.c stands on all floors
    for i in $(includes "$file"); do
        # The engine's lowest floor is pure: the commands name levels and features by it.
        [ "$room $i" != "cmd engine/cpu/cpu.h" ] || continue
        # shellcheck disable=SC2046
        allowed "${i%%/*}" "$room" clio $(below "$room") || up "${file#"$TOP"/}" "$i"
    done
done
verdict $((wrong > 0)) "rooms include from floors below"

wrong=0 under=
for floor in $floors; do
    under="$under $floor"
    for file in "$TOP"/src/engine/"$floor"/*.[chS]; do
        for i in $(includes "$file"); do
            case $i in
            engine/*) i=${i#engine/} && allowed "${i%%/*}" $under || up "${file#"$TOP"/}" "engine/$i" ;;
            # shellcheck disable=SC2046
            *) allowed "${i%%/*}" clio $(below engine) || up "${file#"$TOP"/}" "$i" ;;
            esac
        done
    done
done
verdict $((wrong > 0)) "the engine's floors include from below"

wrong=0
for room in "$TOP"/src/engine/*/; do
    allowed "$(basename "$room")" $floors || { echo "$room is no floor"; wrong=1; }
done
verdict $wrong "the engine has no other rooms"
