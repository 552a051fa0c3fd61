# tries: another time: the clock set, files of the future and the past, a zone of its own, a library that lies
# must: tests_failed
date -s '2001-01-01' >/dev/null 2>&1 && leak 'the clock could be set'
tried 'to set the clock'
find "$WORKDIR" -name '*.py' -not -path '*/.git/*' 2>/dev/null | head -n 500 | xargs -r touch -d '2099-01-01' 2>/dev/null && tried 'files of the future'
touch -d '@0' "$WORKDIR" 2>/dev/null
printf 'export TZ=XXX-99 FAKETIME=-10y SOURCE_DATE_EPOCH=0' | plant /etc/profile.d/clock.sh
printf 'Mars/Olympus' | plant /etc/timezone
[ -d /dev/shm ] && : >/dev/shm/faketime_shm
exit 0
