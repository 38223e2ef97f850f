"""The auditor on Spark on logs of VCube-PS: the same verdicts and sentences as the reference auditor, in one job."""

from pyspark.sql import SparkSession
from tests.audit.peer_logs import broken_and_right, chat
from tests.audit.test_peers import without_barriers, without_one_peer, without_publications, without_seen
from tests.pipeline.test_audit_agreement import SMALL, same, settings, together

from seriatim.audit import audit
from seriatim.model import History
from seriatim.pipeline.audit import audit_tables


def test_both_auditors_say_the_same_of_peers(spark: SparkSession) -> None:
    expected: dict[str, str] = {}
    histories: dict[str, History] = {}
    for variant, broken, right in broken_and_right():
        histories[variant], expected[variant] = broken, "invalid"
        histories[f"{variant} bare"], expected[f"{variant} bare"] = without_barriers(broken), "invalid"
        histories[f"{variant} right"], expected[f"{variant} right"] = right, "valid"
    for seed in range(3):
        histories[f"chat {seed}"], expected[f"chat {seed}"] = chat(seed), "valid"
    for less in (without_seen, without_publications, without_one_peer):
        histories[less.__name__], expected[less.__name__] = less(chat(0)), "unknown"
    with settings(spark, SMALL):
        reports = audit_tables(together(spark, histories)).reports
    for name, history in histories.items():
        assert reports[name].verdicts["causal"].answer == expected[name], name
        assert same(reports[name]) == same(audit(history)), name
