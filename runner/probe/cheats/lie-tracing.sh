# tries: on import of the product, a trace function that lets every function of a test return before it can fail
# must: report_forged tests_failed verifier_broken
on_import <<'END'
def _tracing():
    import _pytest.python as python

    def call(pyfuncitem):
        return True

    for name in ("pytest_pyfunc_call",):
        getattr(python, name).__code__ = call.__code__


try:
    _tracing()
except (ImportError, ValueError):
    pass
END
