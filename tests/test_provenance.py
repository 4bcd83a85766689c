from __future__ import annotations

import json

from ringbench.records.provenance import provenance
from ringbench.records.run import SCHEMA_VERSION
from ringbench.records.settings import Settings, plan_from


def test_the_first_line_says_what_ran_where() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "HOME": "secret", "RINGBENCH_LAB": "nodes=2"}
    environ |= {"UCX_TCP_PUT_ENABLE": "n", "OMPI_MCA_btl_tcp_flags": "send,inplace"}
    settings = Settings(sizes=(8, 64), op="average")
    found = provenance(settings, (1, 2), arguments=["sweep", "x.toml"], environ=environ)
    assert (found["kind"], found["schema_version"]) == ("provenance", SCHEMA_VERSION)
    assert found["command"] == ["ringbench", "sweep", "x.toml"]
    assert found["slurm"] == {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}
    assert found["lab"] == "nodes=2"
    assert found["variables"] == {"OMPI_MCA_btl_tcp_flags": "send,inplace", "UCX_TCP_PUT_ENABLE": "n"}
    assert found["machine"]["cpus"] >= 1
    assert found["machine"]["cpu"]
    assert "secret" not in json.dumps(found, allow_nan=False)


def test_settings_are_read_back_from_it() -> None:
    settings = Settings(sizes=(8, 64), op="average", algorithms=("ring",), segment=None)
    found = json.loads(json.dumps(provenance(settings, (1, 2), arguments=[], environ={})))
    plan = plan_from({**found["settings"], "ranks": found["ranks"]})
    assert (plan.settings, plan.ranks) == (settings, (1, 2))
