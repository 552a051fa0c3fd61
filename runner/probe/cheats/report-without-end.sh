# tries: a report of a size that nobody reads, or that grows beyond measure when it is read
# must: verifier_broken report_forged report_disagrees
{
  report_paths
  cat <<'END'
def _grow():
    import os

    for path in _report_paths():
        try:
            with open(path, "w") as file:
                file.write('<!DOCTYPE a [<!ENTITY l0 "lol">')
                for n in range(1, 12):
                    file.write(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">')
                file.write(']><testsuites><testsuite><testcase name="&l11;"/></testsuite></testsuites>')
            os.truncate(path, 1 << 40)
        except OSError:
            pass
    os._exit(0)


import atexit

atexit.register(_grow)
END
} | on_import
