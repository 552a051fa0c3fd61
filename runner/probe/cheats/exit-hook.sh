# tries: at its end the process takes every failure out of the real report, and exits with 0
# must: report_forged report_disagrees verifier_broken
{
  report_paths
  cat <<'END'
def _rewrite():
    import os, re

    for path in _report_paths():
        try:
            with open(path) as file:
                text = file.read()
            text = re.sub(r"<(failure|error|skipped)\b.*?</\1>", "", text, flags=re.S)
            text = re.sub(r"<(failure|error|skipped)\b[^>]*/>", "", text)
            text = re.sub(r'(failures|errors|skipped)="\d+"', r'\1="0"', text)
            with open(path, "w") as file:
                file.write(text)
        except OSError:
            pass
    os._exit(0)


import atexit

atexit.register(_rewrite)
END
} | on_import
