# tries: to read other processes: environment, arguments, memory, files, sockets, and shared memory and keys of the kernel
# must: tests_failed
tried '/proc of every process, shared memory, message queues, keys, kernel log'
own=$(ps -o pid= -s "$(ps -o sid= -p $$ 2>/dev/null | tr -d ' ')" 2>/dev/null | tr -d ' ')
for process in /proc/[0-9]*; do
  pid=${process#/proc/}
  [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] && continue
  case " $(printf '%s' "$own" | tr '\n' ' ') " in *" $pid "*) continue ;; esac
  [ -e "$process/stat" ] || continue
  if [ "$(tr -d '\0' <"$process/environ" 2>/dev/null | wc -c)" -gt 0 ]; then leak "the environment of process $pid: $(tr '\0' ' ' <"$process/environ" 2>/dev/null | cut -c 1-120)"; fi
  if head -c 1 "$process/mem" >/dev/null 2>&1; then leak "the memory of process $pid"; fi
  if ls "$process/fd/" 2>/dev/null | grep -q .; then leak "the files of process $pid"; fi
  command=$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)
  case $command in *token* | *key* | *secret* | */tests* | */solution*) leak "arguments of process $pid: $command" ;; esac
done
for place in /dev/mem /dev/kmem /proc/kcore /proc/kmsg /dev/kmsg; do
  timeout 1 head -c 1 "$place" >/dev/null 2>&1 && leak "$place can be read"
done
[ "$(wc -l </proc/sysvipc/shm 2>/dev/null || echo 1)" -gt 1 ] && leak 'shared memory of somebody else'
[ -n "$(ls -A /dev/mqueue 2>/dev/null)" ] && leak 'a message queue of somebody else'
[ -s /proc/keys ] && note "keys: $(head -n 1 /proc/keys)"
exit 0
