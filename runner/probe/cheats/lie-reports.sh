# tries: on import of the product, every report of a test is made a pass where it is made
# must: report_forged
on_import <<'END'
try:
    import _pytest.reports as _reports

    _make = _reports.TestReport.from_item_and_call.__func__

    def _passed(cls, item, call):
        report = _make(cls, item, call)
        report.outcome, report.longrepr = "passed", None
        return report

    _reports.TestReport.from_item_and_call = classmethod(_passed)
    _collect = _reports.CollectReport.__init__

    def _collected(self, nodeid, outcome, longrepr, result, *more, **other):
        _collect(self, nodeid, "passed", None, result or [], *more, **other)

    _reports.CollectReport.__init__ = _collected
except ImportError:
    pass
END
