# tries: on import of the product, the writer of the report no longer knows failures, and the session ends well
# must: report_forged report_disagrees verifier_broken
on_import <<'END'
try:
    import _pytest.junitxml as _junit
    import _pytest.main as _main

    for _name in ("append_failure", "append_error", "append_collect_error", "append_skipped"):
        setattr(_junit._NodeReporter, _name, lambda self, report: None)
    _main.Session.testsfailed = property(lambda self: 0, lambda self, value: None)
except ImportError:
    pass
END
