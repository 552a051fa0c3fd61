# tries: whatever runs the agent stopped or killed, PID 1 and every other process of the sandbox
# must: tests_failed
for signal in STOP TERM KILL INT HUP SEGV; do kill -$signal 1 2>/dev/null && tried "kill -$signal 1"; done
[ -n "$PY" ] && "$PY" -c 'import ctypes; c = ctypes.CDLL(None); print(c.ptrace(16, 1, 0, 0))' 2>/dev/null
for process in /proc/[0-9]*; do
  pid=${process#/proc/}
  [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] || kill -STOP "$pid" 2>/dev/null
done
tried 'stopped every other process'
for file in /proc/1/oom_score_adj /proc/1/comm; do echo 1000 >"$file" 2>/dev/null && leak "wrote to $file"; done
# Last of all: itself and everything else.
kill -KILL -1 2>/dev/null
kill -KILL $$
