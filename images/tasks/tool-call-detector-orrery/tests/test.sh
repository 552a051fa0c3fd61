#!/bin/bash
# Harbor's entry: the reward is 1 when both suites pass, else 0.
set -u
mkdir -p /logs/verifier
cd "${SGLANG_TREE:-/workspace/sglang}" || exit 1

suite() {
    PYTHONDONTWRITEBYTECODE=1 python3 -P -m pytest -q -p no:cacheprovider -c /dev/null --rootdir=/tests --tb=short \
        --junitxml="/logs/verifier/$1.xml" "/tests/$1"
}

reward=1
suite functional || reward=0
suite regression || reward=0
echo "$reward" >/logs/verifier/reward.txt
