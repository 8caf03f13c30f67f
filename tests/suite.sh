#!/usr/bin/env bash
# Runs one suite: suite.sh NAME BUDGET_SECONDS COMMAND...; prints its time, and fails if it took longer than its budget.
# With SUITE_LOGS=FOLDER, for suites that run side by side, what it says goes to FOLDER/NAME.log; shown are its begin and its end, of a
# suite that failed all that it said, each line with its name.
set -uo pipefail
name=$1 budget=$2
shift 2
began=$(date +%s)
if [[ -n ${SUITE_LOGS:-} ]]; then
  mkdir -p "$SUITE_LOGS"
  log=$SUITE_LOGS/$name.log
  echo "== $name: begins, at most $budget s; follow it with: tail -f ${log#"$PWD"/}"
  "$@" >"$log" 2>&1
  code=$?
  if ((code == 0)); then
    grep -aE '^(SKIPPED|XFAIL|[a-z]+: |=+ .* in [0-9]|[0-9]+ (passed|failed)|== )' "$log" | sed "s/^/$name | /"
  else
    sed "s/^/$name | /" "$log"
  fi
else
  echo "== $name"
  "$@"
  code=$?
fi
took=$(($(date +%s) - began))
((code == 0)) && verdict="" || verdict=" FAILED with exit code $code,"
echo "== $name:$verdict $took s of $budget s"
if ((code == 0 && took > budget)); then
  echo "== $name: over its budget; make it faster, or say in the Makefile why it needs more" >&2
  exit 1
fi
exit "$code"
