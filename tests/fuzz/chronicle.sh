#!/usr/bin/env bash
# Damaged chronicles with right checksums, read under ASan and UBSan. CLIO_FUZZ: seconds.
set -u
${CC:-gcc} -std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
    -I"$TOP/src" -I"$TOP/include" -o fuzz_chronicle "$TOP/tests/fuzz/fuzz_chronicle.c" "$TOP"/src/chronicle/*.c -lzstd ||
    { echo "not ok fuzz_chronicle does not build"; exit 1; }
# Sizes in a damaged file may ask for more memory than there is: that must be an error, not a crash.
ASAN_OPTIONS=allocator_may_return_null=1 ./fuzz_chronicle "${CLIO_FUZZ:-10}" ||
    { echo "not ok fuzz_chronicle ended with status $?"; exit 1; }
