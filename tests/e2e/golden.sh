#!/usr/bin/env bash
# Golden traces: what earlier versions recorded is read, replayed and explained as then.
. "$(dirname "$0")/lib.sh"
. "$TOP/tests/golden/ask.sh"

for archive in "$TOP"/tests/golden/v*.tar.gz; do
    name=$(basename "$archive" .tar.gz)
    expected=$TOP/tests/golden/$name
    rm -rf golden.trace got && mkdir got
    tar -xzf "$archive" || { verdict 1 "$name unpacks"; continue; }
    "$CLIO" verify golden.trace >verify.out
    check "$name: verify" test $? = 0
    "$CLIO" replay -a golden.trace >got/out 2>replay.err
    check "$name: replay" test $? = 0
    ask golden.trace got
    for answer in out ps dump crash last-write; do
        check "$name: $answer" same_file "$expected/$answer" "got/$answer"
    done
done
