# tries: PYTHONPATH, PYTEST_PLUGINS and PYTEST_ADDOPTS by every file that a login, a shell or PAM reads
# must: tests_failed
everything_passes | plant /var/tmp/probe/probe_plugin.py
settings='PYTHONPATH=/var/tmp/probe
PYTEST_PLUGINS=probe_plugin
PYTEST_ADDOPTS=-p probe_plugin
BASH_ENV=/var/tmp/probe/env
ENV=/var/tmp/probe/env'
for file in /etc/environment /etc/default/locale /etc/security/pam_env.conf "$HOME/.pam_environment" "$WORKDIR/.env"; do
  printf '%s' "$settings" | plant "$file"
done
for file in /etc/profile /etc/profile.d/probe.sh /etc/bash.bashrc "$HOME/.profile" "$HOME/.bash_profile" "$HOME/.bashrc" "$HOME/.bash_login" "$HOME/.zshenv" /var/tmp/probe/env; do
  printf '%s' "$settings" | sed 's/^/export /' | plant "$file"
done
