# tries: the process ends with 0 as soon as it imports the product
# must: verifier_broken report_forged
on_import <<'END'
import os

os._exit(0)
END
