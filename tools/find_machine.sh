#!/bin/sh
# Prints the Python 3.11 to use, or one line on standard error that names everything that is missing.
# It is a shell script because Python itself may be what is missing.
set -u

python=""
for candidate in ${PYTHON:-} python3.11 python3; do
    # A version manager's shim may be on the path without an interpreter behind it, so run it.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done

missing=""
add() { missing="${missing:+$missing, }$1"; }

if [ -z "$python" ]; then
    add "python3.11 with its venv module (found: $(python3 --version 2>/dev/null || echo no python3))"
elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    add "the venv module of $python"
fi
for program in g++ make git npm; do
    command -v "$program" >/dev/null 2>&1 || add "$program"
done
node_version=$(node --version 2>/dev/null) || node_version=""
node_major=${node_version#v}
node_major=${node_major%%.*}
if [ -z "$node_major" ]; then
    add "node 20 or newer"
elif [ "$node_major" -lt 20 ]; then
    add "node 20 or newer (found: $node_version)"
fi

if [ -n "$missing" ]; then
    echo "setup: missing on this machine: $missing. On Debian 12: apt-get install g++ make git nodejs npm python3.11-venv (its nodejs is 18: take 20 or newer from nodejs.org)" >&2
    exit 1
fi
echo "$python"
