#!/usr/bin/env bash
# The steps of a gate in continuous integration, a verb each. The GitHub Action (action.yml) and the GitLab template
# (ci/gitlab/oracle.gitlab-ci.yml) call nothing else, so what CI runs can be run by hand: see docs/ci.md.
#
#   ci/steps.sh settings | install | render | key | calibrate | run | gate | summary
#
# Settings are variables of the environment, none of which a step changes:
#   ORACLE_CONFIG  run config                 ORACLE_STACKS       the two legs          [torch,jax]
#   ORACLE_POLICY  policy of the gate         ORACLE_STACKS_FILE  where they are named  [configs/stacks.toml of the oracle]
#   ORACLE_OUT     folder of runs [runs]      ORACLE_REPORT       folder of what is kept [oracle-report]
#   ORACLE         the command [that of the oracle's .venv]
#   ORACLE_BASE    commit before the change: rules that the change touches show, acknowledged or not
set -euo pipefail

home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${ORACLE_OUT:-runs}
kept=${ORACLE_REPORT:-oracle-report}
oracle=${ORACLE:-$home/.venv/bin/oracle}
legs=(--stacks "${ORACLE_STACKS:-torch,jax}" --stacks-file "${ORACLE_STACKS_FILE:-$home/configs/stacks.toml}")

config() {
  : "${ORACLE_CONFIG:?names no run config}"
  printf '%s' "$ORACLE_CONFIG"
}

# Carry the settings from the inputs of an action to its later steps.
settings() {
  local name
  for name in ORACLE_CONFIG ORACLE_POLICY ORACLE_STACKS ORACLE_STACKS_FILE ORACLE_OUT ORACLE_REPORT ORACLE_BASE; do
    if [[ ${!name-} == *$'\n'* ]]; then
      echo "ci/steps.sh: $name holds a line end; a setting is one line." >&2
      return 2
    fi
    [[ -z ${!name-} ]] || printf '%s=%s\n' "$name" "${!name}" >>"${GITHUB_ENV:-/dev/stdout}"
  done
}

install() {
  make -C "$home" install
}

# Text, ids and masks of every example, in seconds: what parts here need not be trained.
render() {
  "$oracle" render "$(config)" --out "$out" "${legs[@]}"
}

# The name under which the floor of this config, code, versions and machine may be kept. After `render`.
key() {
  local found
  found=$("$oracle" floor-key latest --out "$out")
  echo "$found"
  [[ -z ${GITHUB_OUTPUT-} ]] || printf 'key=%s\n' "$found" >>"$GITHUB_OUTPUT"
}

# Measure the floor unless one that was kept still holds. After `render`.
calibrate() {
  local code=0
  "$oracle" floor-key latest --out "$out" --holds || code=$?
  case $code in
    0) echo "the floor that was kept holds" ;;
    3) "$oracle" calibrate "$(config)" --out "$out" "${legs[@]}" ;;
    *) return "$code" ;;
  esac
}

# Train in both stacks. A verdict of any kind is for the gate; only a run that was stopped ends here.
run() {
  local code=0
  "$oracle" run "$(config)" --out "$out" "${legs[@]}" || code=$?
  ((code <= 3)) || return "$code"
}

# One line, an exit code; the answer as JSON is kept. An answer of an earlier try never stands for this one.
gate() {
  local code=0 options=(--out "$out" --record "$kept/gate.json")
  [[ -z ${ORACLE_POLICY-} ]] || options+=(--policy "$ORACLE_POLICY")
  if [[ -n ${ORACLE_BASE-} ]]; then
    if git cat-file -e "$ORACLE_BASE^{commit}" 2>/dev/null; then
      options+=(--base "$ORACLE_BASE")
    else
      echo "ci/steps.sh: the base $ORACLE_BASE is not fetched, so rules that this change touches do not show." >&2
    fi
  fi
  mkdir -p "$kept"
  rm -f "$kept/gate.json" "$kept/gate.txt"
  "$oracle" gate "${options[@]}" | tee "$kept/gate.txt" || code=$?
  [[ -z ${GITHUB_OUTPUT-} ]] || printf 'line=%s\n' "$(cat "$kept/gate.txt")" >>"$GITHUB_OUTPUT"
  return "$code"
}

# Gate line and report for people, and the files that CI keeps. No trace is kept: it is clinical data.
summary() {
  mkdir -p "$kept"
  {
    if [[ -s $kept/gate.txt ]]; then
      printf '`%s`\n\n' "$(cat "$kept/gate.txt")"
    else
      printf 'No gate was reached, so nothing passes; the log of the first red step says why.\n\n'
    fi
    if [[ -e $out/latest/verdict.json ]]; then
      "$oracle" report latest --out "$out" --format markdown
    fi
  } >"$kept/summary.md"
  cat "$kept/summary.md" >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
  local name
  for name in verdict.json report.html; do
    [[ ! -e $out/latest/$name ]] || cp "$out/latest/$name" "$kept/"
  done
  if [[ -e $out/latest/verdict.json ]]; then
    "$oracle" report latest --out "$out" --format junit -o "$kept/junit.xml"
    "$oracle" report latest --out "$out" --format sarif -o "$kept/report.sarif"
  fi
}

case ${1-} in
  settings | install | render | key | calibrate | run | gate | summary) "$1" ;;
  *)
    echo "ci/steps.sh: unknown step '${1-}'; known are settings, install, render, key, calibrate, run, gate, summary." >&2
    exit 2
    ;;
esac
