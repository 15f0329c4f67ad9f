"""The dashboard for Grafana asks only for metrics that exist."""

import json
import re

import prometheus_client

from tests.cluster import ROOT
from tf_byteps.metrics.names import COMMON_LABELS, GROUPS, METRICS

DASHBOARD = json.loads((ROOT / "examples" / "monitoring" / "dashboard.json").read_text())
# What Prometheus itself adds.
ADDED_LABELS = {"job", "instance"}


def targets():
    return [(panel["title"], t) for panel in DASHBOARD["panels"] for t in panel["targets"]]


def labels_by_name():
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    found = {s.name: set() for family in registry.collect() for s in family.samples}
    found.update((m.name, {*COMMON_LABELS, *GROUPS[m.source]}) for m in METRICS)
    return found


def test_every_metric_and_label_exists():
    known = labels_by_name()
    for title, target in targets():
        names = re.findall(r"\b(?:tf_byteps|process)_\w+", target["expr"])
        assert names, title
        for name in names:
            assert name in known, f"{title}: there is no metric {name}"
        labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert labels <= known[names[0]] | ADDED_LABELS, title
    for variable in DASHBOARD["templating"]["list"]:
        for name in re.findall(r"\btf_byteps_\w+", variable["query"]):
            assert name in known


def test_counters_are_shown_as_rates_and_gauges_are_not():
    kinds = {metric.name: metric.kind for metric in METRICS}
    for title, target in targets():
        for name in re.findall(r"\btf_byteps_\w+", target["expr"]):
            is_rate = re.search(rf"\b(rate|increase)\({name}\b", target["expr"]) is not None
            assert is_rate == (kinds[name] == "counter"), title


def test_panels_have_numbers_and_places_of_their_own():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}) == len(panels)
    for panel in panels:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
