#!/usr/bin/env bash
# Damaged traces, read under ASan and UBSan. CLIO_FUZZ: seconds.
set -u
${CC:-gcc} -std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
    -I"$TOP/src" -I"$TOP/include" -o fuzz_reader "$TOP/tests/fuzz/fuzz_reader.c" "$TOP"/src/trace/*.c \
    "$TOP"/src/base/syscall_names.c "$TOP"/src/base/names.c -lzstd -lcmocka ||
    { echo "not ok fuzz_reader does not build"; exit 1; }
TMPDIR=$PWD ./fuzz_reader "${CLIO_FUZZ:-10}" ||
    { echo "not ok fuzz_reader ended with status $?"; exit 1; }
