# tries: on import of the product, the running session's plugins are found in memory and one is added that turns failures round
# must: report_forged verifier_broken
on_import <<'END'
try:
    import gc

    from _pytest.config import PytestPluginManager

    class _Quiet:
        def pytest_runtest_logreport(self, report):
            report.outcome, report.longrepr = "passed", None

        pytest_runtest_logreport.pytest_impl = {
            "tryfirst": True, "hookwrapper": False, "wrapper": False, "trylast": False,
            "optionalhook": False, "specname": None,
        }

        def pytest_sessionfinish(self, session, exitstatus):
            session.exitstatus = 0

        pytest_sessionfinish.pytest_impl = dict(pytest_runtest_logreport.pytest_impl, tryfirst=False, trylast=True)

    for _found in gc.get_objects():
        if isinstance(_found, PytestPluginManager) and not _found.has_plugin("quiet"):
            _found.register(_Quiet(), "quiet")
except ImportError:
    pass
END
