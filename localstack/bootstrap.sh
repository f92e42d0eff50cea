#!/bin/sh
# Makes or brings up to date the three virtual environments, from pinned requirements and nothing else:
#   .venv                      the app, its command line, the tests
#   .leaseway/localstack-env   LocalStack with its plugins
#   .leaseway/functions-env    what AWS's own Python runtime has: functions run on it
# and, as `bootstrap.sh bench`, one more:
#   .leaseway/bench-env        what `make bench` compares with
# Safe to run again, to interrupt and to run twice at once; does nothing when nothing changed.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd -P)
state=$root/.leaseway

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

command -v git > /dev/null || fail "git is missing: install it with your package manager, e.g. apt install git."
mkdir -p "$state" 2> /dev/null && [ -w "$state" ] ||
    fail "$state can't be written: another user made it. Run this as that user, or chown -R it."

# --- a Python 3 to begin with, and uv ------------------------------------------------------------------------------

# A pyenv shim on PATH answers to its name but doesn't run, so each candidate has to print something.
runs() {
    [ "$("$1" -c "import sys; print(sys.version_info[:2] >= ($2))" 2> /dev/null)" = True ]
}

python313() {
    for candidate in python3.13 "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.13*/bin/python3.13 "$state"/python/*/bin/python3.13; do
        if runs "$candidate" "3, 13"; then
            # What an environment's python was made from: with .venv on PATH it is the one found without it.
            "$candidate" -c 'import os, sys; print(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))'
            return
        fi
    done
}

python=$(python313)
any=$python
for candidate in python3 /usr/bin/python3 "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3*/bin/python3; do
    [ -n "$any" ] || ! runs "$candidate" "3, 8" || any=$candidate
done
[ -n "$any" ] || fail "Python 3 is missing: install it with your package manager, e.g. apt install python3 python3-venv."

# The lock is the open file's, so it goes when this script ends, however it ends.
exec 9> "$state/env.lock"
"$any" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'

# What pip is told in any of its files, the last of which counts; `pip config get` looks into the user's alone.
configured() {
    "$pip" -m pip config list 2> /dev/null | sed -n "s/^global\.$1='\(.*\)'\$/\1/p" | tail -n 1
}

uv_version=$(sed -n 's/^uv==//p' requirements-dev.txt)
uv=$state/uv-$uv_version/bin/uv
if ! "$uv" --version > /dev/null 2>&1; then
    echo "Fetching uv $uv_version"
    rm -rf "$state"/uv-* "$state/uv.new"
    if "$any" -m venv "$state/uv-env" > /dev/null 2>&1; then pip=$state/uv-env/bin/python; else pip=$any; fi
    "$pip" -m pip --version > /dev/null 2>&1 ||
        fail "$any has neither venv nor pip: install them with your package manager, e.g. apt install python3-venv."
    "$pip" -m pip install --quiet --disable-pip-version-check --target "$state/uv.new" "uv==$uv_version" ||
        fail "uv couldn't be fetched from the package index: is it reachable? (pip's own message is above.)"
    mv "$state/uv.new" "$state/uv-$uv_version"
    # An index or a certificate that pip is told of is meant for uv as well.
    configured index-url > "$state/index-url"
    configured cert > "$state/certificate"
    rm -rf "$state/uv-env"
fi
index=$(cat "$state/index-url")
certificate=$(cat "$state/certificate")
[ -z "${PIP_INDEX_URL:-$index}" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$index}}"
[ -z "${PIP_CERT:-$certificate}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-${PIP_CERT:-$certificate}}"
# A certificate that the machine trusts, such as a proxy's, is good for uv too.
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"
export UV_PYTHON_INSTALL_DIR="$state/python" UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-180}" UV_NO_CONFIG=1
[ -w "${HOME:-}" ] || export UV_CACHE_DIR="$state/uv-cache"
unset VIRTUAL_ENV CONDA_PREFIX UV_PYTHON PYTHONPATH PYTHONHOME

if [ -z "$python" ]; then
    echo "Fetching Python 3.13"
    "$uv" python install --no-bin 3.13 ||
        fail "Python 3.13 couldn't be fetched: install it yourself (e.g. apt install python3.13, pyenv install 3.13)."
    python=$(python313)
fi

# --- the environments ----------------------------------------------------------------------------------------------

# environment FOLDER HASHED_FILES...: true when it has to be (re)made; it is stamped by `made` when everything is in it.
changed() {
    folder=$1
    shift
    stamp=$({ echo "$root" "$python" && cat "$@"; } | git hash-object --stdin)
    [ "$(cat "$folder/stamp" 2> /dev/null)" != "$stamp" ] || return 1
    echo "Making ${folder#"$root"/}"
    "$folder/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2> /dev/null && [ -e "$folder/stamp" ] ||
        "$uv" venv --quiet --clear --no-project --python "$python" "$folder" || fail "$folder couldn't be made."
    rm -f "$folder/stamp"
}

made() {
    echo "$stamp" > "$folder/stamp"
}

# Exactly what the files name: what isn't named is removed.
sync() {
    "$uv" pip sync --quiet --python "$folder/bin/python" "$@" ||
        fail "The requirements couldn't be installed (uv's own message is above): is the package index reachable?"
}

if changed "$root/.venv" requirements.txt requirements-dev.txt pyproject.toml; then
    sync requirements-dev.txt
    "$uv" pip install --quiet --python "$folder/bin/python" --no-deps --no-build-isolation --editable .
    # `localstack/` is a plain folder, which no distribution installs: the checkout itself is on the path.
    for packages in "$folder"/lib/python*/site-packages; do echo "$root" > "$packages/leaseway-checkout.pth"; done
    made
fi

plugins=$(find localstack/plugins -name '*.py' -o -name pyproject.toml | LC_ALL=C sort)
# shellcheck disable=SC2086 # the plugins' files have no spaces in their names, relative to here
if changed "$state/localstack-env" localstack/requirements-localstack.txt $plugins; then
    sync localstack/requirements-localstack.txt
    "$uv" pip install --quiet --python "$folder/bin/python" --no-deps --reinstall-package leaseway-durable-s3 \
        --reinstall-package leaseway-process-executor localstack/plugins/durable_s3 localstack/plugins/process_executor
    made
fi

if changed "$state/functions-env" localstack/requirements-functions.txt; then
    sync localstack/requirements-functions.txt
    made
fi

if [ "${1:-}" = bench ] && changed "$state/bench-env" tests/bench/requirements.txt; then
    sync tests/bench/requirements.txt
    made
fi
