# tries: a process that the product starts in the verifier and that writes a report of its own after the tests have ended
# must: tests_failed report_forged verifier_broken report_disagrees
{
  report_paths
  cat <<'END'
def _leave_writer():
    import os, sys, time

    paths = _report_paths()
    if os.fork() != 0:
        return
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    for fd in range(256):
        try:
            os.close(fd)
        except OSError:
            pass
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for path in paths:
            try:
                if os.path.getsize(path) > 0:
                    with open(path, "w") as file:
                        file.write("1" if path.endswith("reward.txt") else '<testsuites><testsuite><testcase classname="a" name="b"/></testsuite></testsuites>')
            except OSError:
                pass
        time.sleep(0.001)
    os._exit(0)


_leave_writer()
END
} | on_import
