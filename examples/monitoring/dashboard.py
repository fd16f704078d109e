"""Writes grafana.json, the dashboard: python dashboard.py > grafana.json"""

import json

PANELS = [
    # title, unit, legend, expression; or several of the latter two
    ("Tasks by state", "short", [("{{state}}", "sum by (state) (taskq_tasks)")]),
    ("Ready", "short", [("{{action}}", 'sum by (action) (taskq_tasks{state="ready"})')]),
    ("In progress", "short", [
        ("{{action}}", 'sum by (action) (taskq_tasks{state="in-progress"})'),
        ("limit of {{action}}", "taskq_concurrency_limit"),
    ]),
    ("Oldest ready task", "s", [("{{action}}", "max by (action) (taskq_oldest_ready_age_seconds)")]),
    ("Rates", "ops", [
        ("inserted", "rate(taskq_inserted_tasks_total[5m])"),
        ("settled", "rate(taskq_endings_total[5m])"),
        ("tries that ended otherwise", "rate(taskq_unsettled_tries_total[5m])"),
    ]),
    ("Ended", "ops", [("{{action}}, {{outcome}}", "sum by (action, outcome) (rate(taskq_ended_tasks_total[5m]))")]),
    ("Ended, as far as kept", "short", [("{{cause}}", "sum by (cause) (taskq_settled_tasks)")]),
    ("Earlier tries", "short", [("{{outcome}}", "sum by (outcome) (taskq_earlier_tries)")]),
    ("Who works, who sleeps", "short", [
        ("actors with tasks", "taskq_actors"),
        ("sleep for {{for}}", "taskq_waiters"),
    ]),
    ("Past their deadlines", "short", [("{{action}}", "sum by (action) (taskq_overdue_tasks)")]),
    ("Slots held", "short", [("{{action}}", "taskq_concurrency_slots_held")]),
    ("Schedules", "short", [
        ("all", "taskq_schedules"),
        ("due", "taskq_due_schedules"),
        ("failing", "taskq_failing_schedules"),
    ]),
    ("Paused, and left to upkeep", "short", [
        ("paused actions", "sum(taskq_paused_actions)"),
        ("paused groups", "taskq_paused_groups"),
        ("signals to be counted", "taskq_deferred_signals"),
        ("retention is over", "taskq_expired_tasks"),
    ]),
]

SOURCE = {"type": "prometheus", "uid": "${source}"}


def panel(number, title, unit, queries):
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"x": number % 3 * 8, "y": number // 3 * 8, "w": 8, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 10}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for i, (legend, expression) in enumerate(queries)
        ],
    }


DASHBOARD = {
    "title": "taskq",
    "uid": "taskq",
    "tags": ["taskq", "postgresql"],
    "schemaVersion": 39,
    "editable": True,
    "refresh": "30s",
    "time": {"from": "now-3h", "to": "now"},
    "templating": {"list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]},
    "panels": [panel(number, *of) for number, of in enumerate(PANELS)],
}

print(json.dumps(DASHBOARD, indent=2))
