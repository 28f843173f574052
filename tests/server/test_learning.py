"""What the server learns: about each model and kind of request, and only if the operator's options apply."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langchain_reasc.calibration import Observation, ObservationStore, fit, save_calibration
from langchain_reasc.calibration.observations import MOST_KINDS
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
        page = server.http.get(server.url.removesuffix("/v1") + "/").text
        assert "1 other models: 1 questions" in page and "org/other" not in page
        for number in range(9):
            for _ in range(2):
                last = server.chat(model=f"made-up-{number}").json()["reasc"]
        assert "kind" not in last
        assert eventually(lambda: len([*tmp_path.glob("learned-made-up-*.sqlite")]) == 7, 20)


def test_what_a_request_asks_for_by_itself_is_not_learned_of(tmp_path: Path) -> None:
    state = tmp_path / "learned.sqlite"
    with front(Said(), votes={"answer": "number", "calibration": "online", "state": str(state)}) as server:
        for asked in ({"rule": "asc"}, {"rule": "asc", "answer": "message"}, {"calibration": "none"}):
            for model in ("tiny", "other"):
                for _ in range(2):
                    account = server.chat(model=model, response_format=SHAPE, reasc=asked).json()["reasc"]
                    assert "kind" not in account
    assert [*tmp_path.iterdir()] == []


OWN_ANSWERS = ("message", "boxed", "json:status", "auto")


@pytest.mark.full
@pytest.mark.parametrize("learned_before", [False, True], ids=["a new file", "a file of the operator's answers"])
def test_each_answer_that_requests_ask_for_is_a_kind_that_is_learned(tmp_path: Path, learned_before: bool) -> None:
    state = tmp_path / "learned.sqlite"
    votes = {"answer": "number", "calibration": "online", "state": str(state)}
    before = {}
    if learned_before:
        with front(Said(), votes=votes) as server:
            before = {kind(server): 1}
            assert learned(lambda: seen(state), before)
    with front(Said(), votes=votes) as server:
        for _ in range(2):
            kinds = [kind(server, response_format=SHAPE, reasc={"answer": answer}) for answer in OWN_ANSWERS]
        named = server.post({"messages": HELLO, "response_format": SHAPE}, headers={"x-reasc-answer": "boxed"})
        assert named.json()["reasc"]["kind"] == kinds[1], "a header asks for the same"
        own = kind(server, response_format=SHAPE)
        same = server.chat(response_format=SHAPE, reasc={"answer": "number", "max_samples": 5}).json()["reasc"]
        assert same["kind"] == own and len({own, *kinds}) == len(OWN_ANSWERS) + 1
        counts = {kinds[0]: 2, kinds[1]: 3, kinds[2]: 2, kinds[3]: 2, own: 2}
        assert learned(lambda: seen(state), before | counts)
        id = server.chat(response_format=SHAPE, reasc={"answer": "boxed"}).json()["reasc"]["id"]
        assert server.post({"id": id, "correct": True}, "/../reasc/outcome").json() == {"recorded": True}
    with front(Said(), votes=votes) as server:
        assert kind(server, response_format=SHAPE, reasc={"answer": "boxed"}) == kinds[1], "the file is read again"


@pytest.mark.full
def test_an_answer_of_its_own_gets_a_calibration_of_its_own(tmp_path: Path) -> None:
    votes = {"answer": "message", "calibration": "online", "state": str(tmp_path / "learned.sqlite")}
    with front(Said(), votes=votes) as server:
        for _ in range(18):
            server.chat(response_format=SHAPE)
        for _ in range(18):
            server.chat(reasc={"answer": "number"})

        def notice() -> str:
            return str(server.chat(reasc={"answer": "number"}).json()["reasc"]["notices"][0])

        assert eventually(lambda: "questions of this kind" in notice(), 20)


@pytest.mark.full
def test_no_more_kinds_are_told_apart_than_others() -> None:
    with front(Said(), votes={"answer": "number", "calibration": "online"}) as server:
        for number in range(MOST_KINDS + 6):
            assert server.chat(reasc={"answer": f"json:{number}"}, response_format=SHAPE).status_code == 200
        solver = server.gateway.solver

        def known() -> Any:
            return solver.learning()

        assert eventually(lambda: known().seen == MOST_KINDS + 6, 20)
        assert len(known().kinds) == MOST_KINDS


def test_with_a_calibration_from_a_file_other_answers_are_counted(tmp_path: Path) -> None:
    questions = [Observation((0, 0, 0, at % 3), np.empty((0, 4))) for at in range(40)]
    path = str(tmp_path / "own.json")
    save_calibration(fit(questions, fingerprint=Fingerprint()), path)
    with front(Said(), votes={"answer": "number", "calibration": path}) as server:
        assert "p_agree" in server.chat().json()["reasc"]
        account = server.chat(reasc={"answer": "boxed"}, response_format=SHAPE).json()["reasc"]
        assert "p_agree" not in account and "finite horizon" in account["notices"][0]


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
