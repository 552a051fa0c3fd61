# tries: the report of the tests is replaced at the end by a link, a pipe or a folder, of a file that says all is well
# must: verifier_broken report_forged report_disagrees
{
  report_paths
  cat <<'END'
def _replace():
    import os

    for number, path in enumerate(_report_paths()):
        try:
            good = path + ".good"
            with open(good, "w") as file:
                file.write('<testsuites><testsuite><testcase classname="a" name="b"/></testsuite></testsuites>')
            if os.path.lexists(path):
                os.unlink(path)
            if os.getpid() % 3 == 0:
                os.mkfifo(path)
            elif os.getpid() % 3 == 1:
                os.symlink("/etc/shadow", path)
            else:
                os.link(good, path)
        except OSError:
            pass
    os._exit(0)


import atexit

atexit.register(_replace)
END
} | on_import
