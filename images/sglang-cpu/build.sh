#!/bin/sh
# Installs the locked wheels into the system's interpreter and makes a repository of sglang's own tree: one commit whose
# id depends on the wheel alone, no reflog, no samples, nothing unreachable.
set -eu
umask 022
PIP_CONFIG_FILE=/build/pip.conf SSL_CERT_FILE=/build/ca.pem pip install --break-system-packages --ignore-installed --root-user-action ignore \
  --no-deps --require-hashes --only-binary :all: --no-cache-dir --progress-bar off -r /build/requirements.lock

packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib", "posix_local"))')
repository=/workspace/sglang
mkdir -p "$repository/python"
mv "$packages/sglang" "$repository/python/sglang"
printf '%s\n' "$repository/python" > "$packages/sglang.pth"
cp /build/gitignore "$repository/.gitignore"

cd "$repository"
export HOME=/nonexistent GIT_AUTHOR_NAME=SGLang GIT_AUTHOR_EMAIL=sglang@localhost GIT_AUTHOR_DATE='2026-01-01T00:00:00Z'
export GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
version=$(sed -n 's/^sglang==\([^ ]*\).*/\1/p' /build/requirements.lock)
git init --quiet --initial-branch=main --template=
git config core.logAllRefUpdates false
git add --all
git commit --quiet --no-verify --message "sglang $version"
git config --unset core.logAllRefUpdates
git repack -a -d -q
git pack-refs --all
rm -rf .git/logs .git/hooks .git/COMMIT_EDITMSG .git/branches .git/description
git fsck --strict --no-dangling
git rev-parse HEAD
