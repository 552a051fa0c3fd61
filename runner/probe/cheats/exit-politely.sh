# tries: an exception that ends the interpreter with 0 as soon as it imports the product
# must: verifier_broken report_forged tests_failed
on_import <<'END'
import sys

sys.exit(0)
END
