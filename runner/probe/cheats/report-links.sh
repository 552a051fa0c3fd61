# tries: links at the places of reports, to files of its own and to files of the system
# must: tests_failed
printf '<testsuites><testsuite><testcase classname="a" name="b"/></testsuite></testsuites>' | plant /var/tmp/probe/results.xml
rm -rf /results /logs 2>/dev/null
ln -s /var/tmp/probe /results 2>/dev/null && tried 'linked /results'
ln -s /var/tmp/probe /logs 2>/dev/null && tried 'linked /logs'
mkdir -p /var/tmp/probe/verifier
for name in results.xml reward.txt reward.json; do
  ln -sf /etc/passwd "$WORKDIR/$name" 2>/dev/null && tried "linked $WORKDIR/$name"
  ln -sf /var/tmp/probe/results.xml "/var/tmp/probe/verifier/$name" 2>/dev/null
done
ln -s / "$WORKDIR/root" 2>/dev/null && tried "linked $WORKDIR/root"
ln -s ../../../../../../tests "$WORKDIR/hidden" 2>/dev/null && tried "linked $WORKDIR/hidden"
