#!/usr/bin/env bash
# Gradescope runs this once, as root, while it builds the image of the autograder.
#
# For trying it out elsewhere: AUTOGRADER_ROOT stands for /autograder, and GRADER_PYTHON names a Python that has
# all packages of the course, so that nothing is installed.
set -euo pipefail

source="${AUTOGRADER_ROOT:-/autograder}/source"
course="$source/course"
tools=/opt/grader
user=grader

install_all() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install --yes --no-install-recommends bubblewrap git libgomp1 python3 python3-venv util-linux
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --no-cache-dir "pdm[locked]"
    # Not below /root, where an ordinary user can't read.
    export XDG_DATA_HOME="$tools" PDM_CHECK_UPDATE=false
    cd "$course"
    # The system's Python where it is new enough; otherwise PDM fetches one.
    "$tools/venv/bin/pdm" use --first || "$tools/venv/bin/pdm" use --auto-install-max
    "$tools/venv/bin/pdm" install --frozen-lockfile
    "$tools/venv/bin/pdm" cache clear
}

if [ -z "${GRADER_PYTHON:-}" ]; then
    install_all
    GRADER_PYTHON="$course/.venv/bin/python"
fi
echo "$GRADER_PYTHON" > "$source/python"
"$GRADER_PYTHON" -m compileall -q "$course/src" "$course/tests" "$course/lessons" || true

# The grader, and with it learners' code, runs as this user, who can change nothing of the autograder.
chmod -R u=rwX,go=rX "$source"
chmod 400 "$source/seed"
if ! id "$user" > /dev/null 2>&1 && ! useradd --no-create-home --shell /usr/sbin/nologin "$user"; then
    echo "There is no user $user here: submissions are graded as root."
elif ! chown "$user" "$source/seed"; then
    echo "The seed can't be given to the user $user: submissions are graded as root."
fi
