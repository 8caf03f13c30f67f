#!/usr/bin/env bash
# Runs one suite: suite.sh NAME BUDGET_SECONDS COMMAND...; prints its time, and fails if it took longer than its budget.
set -uo pipefail
name=$1 budget=$2
shift 2
echo "== $name"
began=$(date +%s)
"$@"
code=$?
took=$(($(date +%s) - began))
echo "== $name: $took s of $budget s"
if ((code == 0 && took > budget)); then
  echo "== $name: over its budget; make it faster, or say in the Makefile why it needs more" >&2
  exit 1
fi
exit "$code"
