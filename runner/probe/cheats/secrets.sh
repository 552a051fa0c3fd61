# tries: keys and tokens in the environment, in files of tools, and where orchestrators put them
# must: tests_failed
tried 'a search for keys'
env | grep -iE '^[A-Z0-9_]*(SECRET|TOKEN|PASSWORD|API_?KEY|CREDENTIAL)[A-Z0-9_]*=.' | grep -viE 'placeholder' | while read -r line; do leak "in the environment: ${line%%=*}"; done
for file in "$HOME/.netrc" "$HOME/.git-credentials" "$HOME/.docker/config.json" "$HOME/.aws/credentials" "$HOME/.ssh/id_rsa" \
  "$HOME/.ssh/id_ed25519" "$HOME/.cache/huggingface/token" "$HOME/.config/gh/hosts.yml" "$HOME/.pypirc" /run/secrets/* \
  /var/run/secrets/kubernetes.io/serviceaccount/token; do
  [ -s "$file" ] && leak "$file"
done
grep -rlE '(sk|hf|ghp|glpat|xox[bp])[-_][A-Za-z0-9_-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----' /etc "$HOME" /opt /run /var/lib 2>/dev/null |
  grep -vE '^/etc/ssl|^/var/lib/(dpkg|apt)|^/closedbook-script' | head -n 5 | while read -r file; do leak "a key in $file"; done
grep -hE '^\s*(index-url|extra-index-url|proxy)\s*=' /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf" 2>/dev/null | grep -q '@' && leak 'credentials in the settings of pip'
exit 0
