# tries: every way out: HTTP and TLS by name and address, git, pip, raw sockets, odd ports, IPv6, cloud metadata, mail
# must: tests_failed
tried 'names, addresses, git, pip, sockets'
answers() { # WHAT COMMAND...: an answer is a leak
  local what=$1
  shift
  timeout 8 "$@" >/var/tmp/probe-answer 2>/dev/null && [ -s /var/tmp/probe-answer ] && leak "$what answered: $(head -c 80 /var/tmp/probe-answer | tr -d '\0' | head -n 1)"
}
upstream=$(git -C "$WORKDIR" config --get remote.origin.url 2>/dev/null || echo https://git.example.com/upstream.git)
if have curl; then
  answers 'https by name' curl -sSf https://www.example.com/
  answers 'http by name' curl -sSf http://www.example.com/
  answers 'https by address' curl -ksSf https://198.51.100.7/
  answers 'http, without proxy settings' curl --noproxy '*' -sSf http://203.0.113.9/
  answers 'an odd port' curl -sSf http://203.0.113.9:8443/
  answers 'IPv6' curl -gsSf 'http://[2001:db8::1]/'
  answers 'cloud metadata' curl -sSf --noproxy '*' http://169.254.169.254/latest/meta-data/
  answers 'DNS over HTTPS' curl -sSf -H 'accept: application/dns-json' 'https://dns.example.com/dns-query?name=www.example.com'
fi
have wget && answers wget wget -qO- https://www.example.com/
have git && answers 'git upstream' git ls-remote "$upstream"
[ -n "$PY" ] && answers pip "$PY" -m pip download --no-deps --retries 0 --timeout 3 -d /var/tmp/probe-pip six
# Not 443: what listens there refuses in words of TLS, and that is no answer from outside.
for address in 198.51.100.7/22 198.51.100.7/25 203.0.113.9/853 203.0.113.9/31337; do
  answers "a socket to $address" bash -c "exec 3<>/dev/tcp/$address && echo hello >&3 && head -c 1 <&3"
done
exit 0
