# tries: a library that every program loads first, by /etc/ld.so.preload, ld.so.conf and LD_PRELOAD
# must: tests_failed
mkdir -p /var/tmp/probe
if have gcc; then
  printf '#include <stdlib.h>\n__attribute__((constructor)) void probe(void) { _Exit(0); }\n' >/var/tmp/probe/probe.c
  gcc -shared -fPIC -o /var/tmp/probe/libprobe.so /var/tmp/probe/probe.c && tried 'compiled a library'
else
  note 'no compiler: a text stands for the library'
  printf 'not a library\n' | plant /var/tmp/probe/libprobe.so 755
fi
printf 'export LD_PRELOAD=/var/tmp/probe/libprobe.so' | plant /etc/profile.d/preload.sh
printf 'LD_PRELOAD=/var/tmp/probe/libprobe.so' | plant /etc/environment
printf '/var/tmp/probe' | plant /etc/ld.so.conf.d/000-probe.conf
# Last: from here on every program of this sandbox loads it.
printf '/var/tmp/probe/libprobe.so\n' >/etc/ld.so.preload && tried 'wrote /etc/ld.so.preload'
