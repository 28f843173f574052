"""What the server learns: about each model and kind of request, and only if the operator's options apply."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langchain_reasc.calibration import Observation, ObservationStore, fit, save_calibration
from langchain_reasc.models.fingerprint import Fingerprint

from .serving import HELLO, SHAPE, Front, Said, eventually, front


def seen(path: Path) -> dict[str, int]:
    """Return the kinds of request in a store, and how many questions of each."""
    return ObservationStore.open(path).observations([]).kinds if path.exists() else {}


def kind(server: Front, **fields: Any) -> str:
    return str(server.chat(**fields).json()["reasc"]["kind"])


def learned(paths: Callable[[], Any], expected: Any) -> bool:
    return eventually(lambda: bool(paths() == expected), 20)


def test_kinds_of_request_are_told_apart(tmp_path: Path) -> None:
    state = tmp_path / "learned.sqlite"
    with front(Said(), votes={"answer": "number", "calibration": "online", "state": str(state)}) as server:
        brief = kind(server, messages=[{"role": "system", "content": "Be brief."}, *HELLO])
        kinds = [kind(server), kind(server, temperature=0.3), kind(server, response_format=SHAPE), brief]
        assert kinds[0] == kinds[1] and len(set(kinds)) == 3
        assert learned(lambda: seen(state), {kinds[0]: 2, kinds[2]: 1, kinds[3]: 1})


@pytest.mark.full
def test_each_model_is_learned_of_by_itself_once_it_has_answered(tmp_path: Path) -> None:
    state = tmp_path / "learned.sqlite"
    with front(Said(), votes={"answer": "number", "calibration": "online", "state": str(state)}) as server:
        first = server.chat(model="org/other").json()["reasc"]
        again = server.chat(model="org/other").json()["reasc"]
        assert "kind" not in first and "kind" in again, "the first answer shows that there is such a model"
        own = kind(server)
        assert own != again["kind"]
        assert eventually(lambda: len([*tmp_path.glob("learned-org-other-*.sqlite")]) == 1, 20)
        [other] = tmp_path.glob("learned-org-other-*.sqlite")
        assert learned(lambda: (seen(other), seen(state)), ({again["kind"]: 1}, {own: 1}))
        told = server.post({"id": again["id"], "correct": True}, "/../reasc/outcome")
        assert told.json() == {"recorded": True}
        assert "org/other: 1 questions" in server.http.get(server.url.removesuffix("/v1") + "/").text
        for number in range(9):
            for _ in range(2):
                last = server.chat(model=f"made-up-{number}").json()["reasc"]
        assert "kind" not in last
        assert eventually(lambda: len([*tmp_path.glob("learned-made-up-*.sqlite")]) == 7, 20)


def test_what_a_request_asks_for_by_itself_is_not_learned_of(tmp_path: Path) -> None:
    state = tmp_path / "learned.sqlite"
    with front(Said(), votes={"answer": "number", "calibration": "online", "state": str(state)}) as server:
        for asked in ({"answer": "message"}, {"rule": "asc"}):
            for model in ("tiny", "other"):
                for _ in range(2):
                    account = server.chat(model=model, response_format=SHAPE, reasc=asked).json()["reasc"]
                    assert "kind" not in account
    assert [*tmp_path.iterdir()] == []


def test_a_request_may_choose_a_calibration_that_is_offered(tmp_path: Path) -> None:
    questions = [Observation((0, 0, 0, at % 3), np.empty((0, 4))) for at in range(40)]
    offered = {"arithmetic": Fingerprint(), "of another prompt": Fingerprint(prompt_sha256="0" * 64)}
    paths = {name: str(tmp_path / f"{name}.json") for name in offered}
    for name, fingerprint in offered.items():
        save_calibration(fit(questions, fingerprint=fingerprint), paths[name])
    with front(Said(), votes={"answer": "number", "calibration": "online", "offered": paths}) as server:
        chosen = server.chat(reasc={"calibration": "arithmetic"}).json()["reasc"]
        by_header = server.post({"messages": HELLO}, headers={"x-reasc-calibration": "arithmetic"}).json()["reasc"]
        assert "p_agree" in chosen and "p_agree" in by_header and "kind" not in chosen
        counted = server.chat(reasc={"calibration": "none"}).json()["reasc"]
        assert "finite horizon" in counted["notices"][0] and "kind" not in counted
        for name, why in (("of another prompt", "prompt_sha256"), ("paths", "arithmetic, of another prompt, none")):
            refused = server.chat(reasc={"calibration": name})
            assert refused.status_code == 400 and why in refused.json()["error"]["message"]
        assert "kind" in server.chat().json()["reasc"]
