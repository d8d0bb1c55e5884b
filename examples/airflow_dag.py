"""The daily job as a DAG of Airflow: plan, a mapped task for each task of the plan, commit, check, compact, verify.

Copy it to the folder of DAGs. The workers need the package, and access to the sources and the dataset. `SHARDIFY_RAW`,
`SHARDIFY_OUT` and `SHARDIFY_RULES` are paths or URLs; without rules, nothing is checked.
"""

import datetime
import os

from airflow.sdk import dag, task

RAW = os.environ.get("SHARDIFY_RAW", "s3://raw/scans")
OUT = os.environ.get("SHARDIFY_OUT", "s3://data/scans")
RULES = os.environ.get("SHARDIFY_RULES", "")
TASK_SIZE = os.environ.get("SHARDIFY_TASK_SIZE", "8GiB")


@dag(
    schedule="@daily",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
    catchup=False,
    max_active_runs=1,
    # A task that was run before ends at once, so all may be repeated.
    default_args={"retries": 3, "retry_delay": datetime.timedelta(minutes=1)},
)
def shardify_daily():
    @task
    def plan() -> list[dict]:
        import shardify

        planned = shardify.plan(RAW, out=OUT, subject="person_id", task_size=TASK_SIZE)
        return [{"plan": planned.plan, "task": number} for number in range(planned.tasks)]

    @task(max_active_tis_per_dag=16)
    def run(plan: str, task: int) -> None:
        import shardify

        shardify.run_task(plan, task)

    # With nothing new to convert there are no tasks, `run` is skipped, and so is what follows.
    @task
    def commit(planned: list[dict]) -> int | None:
        import shardify

        report = shardify.commit(planned[0]["plan"])
        if report.next_plan is not None:
            # A value fits no column of the plan: convert with the wider types here, or plan and run again.
            report = shardify.convert(RAW, out=OUT)
        return report.version

    # A rule that fails is no matter of trying again: it takes somebody who looks at the data. What follows is not run.
    @task(retries=0)
    def check(version: int | None) -> int | None:
        import shardify

        checked = shardify.check(OUT, rules=RULES) if RULES else None
        if checked is not None and not checked:
            raise RuntimeError("\n".join(f"{rule['rule']}: {rule['found']}" for rule in checked.failed))
        return version

    @task
    def compact(version: int | None) -> None:
        import shardify

        shardify.compact(OUT, since="7d")
        if not shardify.verify(OUT):
            raise RuntimeError(f"{OUT} is damaged; `shardify verify` says where")

    planned = plan()
    committed = commit(planned)
    run.expand_kwargs(planned) >> committed
    compact(check(committed))


shardify_daily()
