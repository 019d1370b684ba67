"""What a rerun did otherwise than the recorded conversation, and whether that is allowed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pydantic import JsonValue

from everturn.errors import Refused
from everturn.evals.matching_calls import choose_place
from everturn.evals.recorded import Recorded, RecordedCall
from everturn.policy import same_json
from everturn.records import ToolCall
from everturn.text.markdown import code
from everturn.text.printable import printable_line

ARGUMENT_CHARS = 60
"""Of a call's arguments, in a table."""


@dataclass(frozen=True)
class Divergence:
    """Where a rerun ended, since nothing recorded answers its call."""

    made: ToolCall
    expected: RecordedCall | None
    """The first recorded call that the rerun had not made by then; None if it had made all."""

    def as_json(self) -> dict[str, JsonValue]:
        call: dict[str, JsonValue] = {"tool": self.made.name, "arguments": self.made.arguments}
        return {"made": call, "expected": self.expected.as_json() if self.expected else None}


@dataclass(frozen=True)
class ChangedCall:
    """The same tool, called with other arguments."""

    before: RecordedCall
    after: RecordedCall

    def as_json(self) -> dict[str, JsonValue]:
        return {"before": self.before.as_json(), "after": self.after.as_json()}


@dataclass(frozen=True)
class Comparison:
    """A recorded conversation, or one turn of it, beside a rerun of it."""

    recorded: Recorded
    rerun: Recorded
    sample: int = 1
    at_turn: int | None = None
    """Only this turn's reply was asked for."""
    missing: tuple[RecordedCall, ...] = ()
    """Recorded calls that the rerun did not make, although it came past them, and that nobody had denied."""
    extra: tuple[RecordedCall, ...] = ()
    """Calls that only the rerun made."""
    changed: tuple[ChangedCall, ...] = ()
    uncorrected: tuple[RecordedCall, ...] = ()
    """Recorded calls that a person had denied, or had given other arguments, and that the rerun made all the same."""
    reordered: bool = False
    """The same calls came in another order."""
    diverged: Divergence | None = None
    problem: str = ""
    """Why the rerun did not end: it stalled, or waited for a person."""
    same_meaning: bool | None = None
    """What the judge says of the two answers; None if it was not asked."""
    is_earlier: bool = False
    """The rerun was begun by an earlier call, and is taken as it is."""

    @property
    def same_calls(self) -> bool:
        return not (self.missing or self.extra or self.changed or self.reordered or self.diverged or self.problem)

    @property
    def endings(self) -> tuple[str, str]:
        """How the recorded conversation and the rerun ended: `completed`; or `failed`, `limit_reached`, `length` and
        the like. A rerun of one turn ends with its reply."""
        return self.recorded.ending(self.at_turn), self.rerun.ending(self.at_turn)

    @property
    def same_ending(self) -> bool:
        """Whether the rerun completed, or ended as the recorded conversation did."""
        before, after = self.endings
        return after in ("completed", before)

    @property
    def same_text(self) -> bool:
        return self.answers[0].strip() == self.answers[1].strip()

    @property
    def same_output(self) -> bool:
        return same_json(self.recorded.output, self.rerun.output)

    @property
    def answers(self) -> tuple[str, str]:
        """What the recorded conversation and the rerun said last; of one turn, its reply."""
        if self.at_turn is None:
            return self.recorded.text, self.rerun.text
        replies = [conversation.replies.get(self.at_turn) for conversation in (self.recorded, self.rerun)]
        before, after = (message.text if message else "" for message in replies)
        return before, after

    @property
    def calls(self) -> tuple[Sequence[RecordedCall], Sequence[RecordedCall]]:
        """Those that are compared: the recorded ones, and the rerun's."""
        return _calls_of(self.recorded, self.at_turn), _calls_of(self.rerun, self.at_turn)

    @property
    def verdict(self) -> str:
        if self.problem:
            return "stuck"
        if self.diverged:
            return "diverged"
        if not self.same_ending:
            return "other ending"
        return "same calls" if self.same_calls else "other calls"

    def findings(self) -> list[str]:
        """Each difference of the calls, and of the ending, in words."""
        findings = [f"missing {_call_text(call.call)}" for call in self.missing]
        findings += [f"extra {_call_text(call.call)}" for call in self.extra]
        findings += [
            f"changed {_call_text(change.before.call)} to {_call_text(change.after.call)}" for change in self.changed
        ]
        findings += [f"not corrected {_call_text(call.call)}: {_correction(call)}" for call in self.uncorrected]
        if self.reordered:
            findings.append("the same calls in another order")
        if self.diverged:
            expected = self.diverged.expected
            beside = f"recorded: {_call_text(expected.call)}" if expected else "recorded: no further call"
            findings.append(f"diverged here: {_call_text(self.diverged.made)}; {beside}")
        if self.problem:
            findings.append(self.problem)
        elif not self.same_ending:
            before, after = self.endings
            reason = f" ({self.rerun.reason})" if self.rerun.reason else ""
            findings.append(f"ended otherwise: {after}{reason}; recorded: {before}")
        return findings

    def as_json(self) -> dict[str, JsonValue]:
        recorded = self.recorded
        rerun = self.rerun
        figures: dict[str, JsonValue] = {}
        if self.at_turn is None:
            for name in ("turns", "cost_usd", "seconds"):
                figures[name] = [getattr(recorded, name), getattr(rerun, name)]
            figures["tokens"] = [_known_tokens(recorded), _known_tokens(rerun)]
        return {
            "id": recorded.id,
            "rerun": rerun.id,
            "sample": self.sample,
            "at_turn": self.at_turn,
            "verdict": self.verdict,
            "earlier": self.rerun.started_at.isoformat() if self.is_earlier and self.rerun.started_at else None,
            "same_calls": self.same_calls,
            "same_ending": self.same_ending,
            "same_text": self.same_text,
            "same_output": self.same_output,
            "same_meaning": self.same_meaning,
            "missing": [call.as_json() for call in self.missing],
            "extra": [call.as_json() for call in self.extra],
            "changed": [
                {"before": change.before.as_json(), "after": change.after.as_json()} for change in self.changed
            ],
            "uncorrected": [call.as_json() for call in self.uncorrected],
            "reordered": self.reordered,
            "diverged": self.diverged.as_json() if self.diverged else None,
            "problem": self.problem or None,
            "ending": list(self.endings),
            "text": list(self.answers),
            **figures,
        }


SHARES: Final = ("same_calls", "same_ending", "same_output", "same_text", "same_meaning")


def _is_between(value: object, least: float, most: float) -> bool:
    """No comparison with NaN misses anything, so a candidate would pass whatever it did."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


@dataclass(frozen=True)
class Thresholds:
    """What a candidate has to reach. Shares are of all reruns, from 0 to 1; ratios are the rerun's to the recorded.
    None asks for nothing. Raises Refused."""

    same_calls: float | None = 1.0
    """At least this share makes the same calls, in the same order."""
    same_ending: float | None = 1.0
    """At least this share completes, or ends as the recorded conversation did."""
    same_output: float | None = None
    same_text: float | None = None
    same_meaning: float | None = None
    """By the judge."""
    cost_ratio: float | None = None
    """At most this, of all costs that are known on both sides."""
    token_ratio: float | None = None
    turn_ratio: float | None = None
    uncorrected: int | None = None
    """At most so many calls that people had denied, or had given other arguments, are made all the same."""

    def __post_init__(self) -> None:
        for name in (threshold.name for threshold in fields(self)):
            wanted = getattr(self, name)
            most = 1.0 if name in SHARES else math.inf
            if wanted is not None and not _is_between(wanted, 0, most):
                raise Refused(
                    f"The threshold {name}={wanted!r:.100} is no number that can be missed.",
                    cure="Give a share from 0 to 1 (0.95 is 95 %), a ratio from 0 on, or None.",
                )


@dataclass(frozen=True)
class Reruns:
    """All comparisons of one candidate."""

    comparisons: tuple[Comparison, ...]
    left_out: tuple[str, ...] = ()
    """Tools of the candidate that its provider would have run by itself, and that a rerun goes without."""
    queue: str = field(default="", compare=False)

    def failures(self, thresholds: Thresholds | None = None) -> list[str]:
        """Each threshold that is missed, in words; empty if the candidate passes."""
        wanted = thresholds or Thresholds()
        missed = []
        if not self.comparisons:
            return ["there is nothing to compare"]
        for name in SHARES:
            least = getattr(wanted, name)
            share = self._share_of(name)
            if least is not None and share < least:
                missed.append(f"{name.replace('_', ' ')}: {share:.0%} of the reruns; at least {least:.0%} are wanted")
        for name, ratio in self.ratios().items():
            most = getattr(wanted, f"{name}_ratio")
            if most is not None and (ratio is None or ratio > most):
                ratio_text = "not known" if ratio is None else f"{ratio:.2f} times the recorded"
                missed.append(f"{name}: {ratio_text}; at most {most:.2f} times is wanted")
        repeated = sum(len(comparison.uncorrected) for comparison in self.comparisons)
        if wanted.uncorrected is not None and repeated > wanted.uncorrected:
            missed.append(
                f"calls that people had corrected: {repeated} made again; at most {wanted.uncorrected} may be"
            )
        return missed

    def ratios(self) -> dict[str, float | None]:
        """Of cost, tokens and turns: the reruns' to the recorded conversations'. None if it is not known."""
        whole_reruns = [
            comparison for comparison in self.comparisons if comparison.at_turn is None and not comparison.problem
        ]
        amounts: dict[str, Callable[[Recorded], float | None]] = {
            "cost": lambda conversation: conversation.cost_usd,
            "token": _known_tokens,
            "turn": lambda conversation: conversation.turns,
        }
        return {
            name: _sum_ratio([(amount(comparison.recorded), amount(comparison.rerun)) for comparison in whole_reruns])
            for name, amount in amounts.items()
        }

    def _share_of(self, name: str) -> float:
        return sum(bool(getattr(comparison, name)) for comparison in self.comparisons) / len(self.comparisons)

    @property
    def earlier(self) -> str:
        """Says which reruns were begun by earlier calls, and when; empty if none were."""
        begun_at = [
            comparison.rerun.started_at
            for comparison in self.comparisons
            if comparison.is_earlier and comparison.rerun.started_at
        ]
        if not begun_at:
            return ""
        return (
            f"{len(begun_at)} of {len(self.comparisons)} reruns are earlier ones, the oldest of "
            f"{min(begun_at).astimezone():%Y-%m-%d %H:%M}. again=True (--again) asks anew."
        )

    def as_json(self) -> dict[str, Any]:
        counts = {name: sum(comparison.verdict == name for comparison in self.comparisons) for name in VERDICTS}
        return {
            "reruns": len(self.comparisons),
            **{name.replace(" ", "_"): count for name, count in counts.items()},
            "ratios": self.ratios(),
            "left_out": list(self.left_out),
            "comparisons": [comparison.as_json() for comparison in self.comparisons],
        }

    def as_table(self) -> str:
        """Columns for a terminal, and below them each difference."""
        rows = [["conversation", "verdict", "calls", "turns", "tokens", "cost"], *map(_table_row, self.comparisons)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        for comparison in self.comparisons:
            lines += [printable_line(f"{_display_name(comparison)}: {finding}") for finding in comparison.findings()]
        if self.earlier:
            lines.append(self.earlier)
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """A table for a pull request."""
        header = (
            "| conversation | verdict | calls | turns | tokens | cost | differences |\n|---|---|---|---|---|---|---|"
        )
        rows: list[str] = []
        for comparison in self.comparisons:
            cells = [
                _markdown_cell(_display_name(comparison)),
                *_table_row(comparison)[1:],
                "<br>".join(map(_markdown_cell, comparison.findings())),
            ]
            rows.append(f"| {' | '.join(cells)} |")
        if self.earlier:
            rows += ["", self.earlier]
        return "\n".join([header, *rows])


VERDICTS = ("same calls", "other calls", "other ending", "diverged", "stuck")


def compare(
    recorded: Recorded,
    rerun: Recorded,
    *,
    ended_at: ToolCall | None = None,
    sample: int = 1,
    at_turn: int | None = None,
    problem: str = "",
) -> Comparison:
    """`ended_at`: the call that nothing recorded answered, and that ended the rerun."""
    if at_turn is not None:  # its calls end the rerun, and it is whole
        ended_at = None
    recorded_calls = _calls_of(recorded, at_turn)
    rerun_calls = _calls_of(rerun, at_turn)
    pairs = _pair_calls(recorded_calls, rerun_calls)
    unmade = [place for place in range(len(recorded_calls)) if place not in pairs]
    ended = ended_at is not None or bool(problem)
    passed = max(pairs, default=-1)
    missing_places = [
        place for place in unmade if (not ended or place < passed) and not recorded_calls[place].is_denied
    ]
    new_calls = [call for place, call in enumerate(rerun_calls) if place not in pairs.values()]
    changed: list[ChangedCall] = []
    for place in list(missing_places):
        counterpart = next((call for call in new_calls if call.call.name == recorded_calls[place].call.name), None)
        if counterpart is not None and (ended_at is None or counterpart.call.call_id != ended_at.call_id):
            changed.append(ChangedCall(recorded_calls[place], counterpart))
            missing_places.remove(place)
            new_calls.remove(counterpart)
    order = [pairs[place] for place in sorted(pairs)]
    diverged = None
    if ended_at is not None and not _is_open(ended_at, recorded_calls, rerun_calls, pairs):
        expected = recorded_calls[unmade[0]] if unmade else None
        diverged = Divergence(ended_at, expected)
    return Comparison(
        recorded,
        rerun,
        sample=sample,
        at_turn=at_turn,
        missing=tuple(recorded_calls[place] for place in missing_places),
        extra=tuple(new_calls),
        changed=tuple(changed),
        uncorrected=tuple(
            recorded_calls[place]
            for place in sorted(pairs)
            if _is_repeated(recorded_calls[place], rerun_calls[pairs[place]])
        ),
        reordered=order != sorted(order) and not (missing_places or new_calls or changed),
        diverged=diverged,
        problem=problem,
    )


def _calls_of(conversation: Recorded, at_turn: int | None) -> Sequence[RecordedCall]:
    """All of them, or those of one turn."""
    if at_turn is None:
        return conversation.calls
    return conversation.at_turn(at_turn)


def _pair_calls(before: Sequence[RecordedCall], after: Sequence[RecordedCall]) -> dict[int, int]:
    """Which recorded call is which call of the rerun, by their places. Those of one reply run at the same time."""
    pairs: dict[int, int] = {}
    for after_place, call in enumerate(after):
        same = [place for place, known in enumerate(before) if place not in pairs and known.is_same(call.call)]
        passed = max((place for place, other in pairs.items() if after[other].turn < call.turn), default=-1)
        if (before_place := choose_place(before, same, passed=passed, times_spoken=call.times_spoken)) is not None:
            pairs[before_place] = after_place
    return pairs


def _is_open(
    ended_at: ToolCall, before: Sequence[RecordedCall], after: Sequence[RecordedCall], pairs: dict[int, int]
) -> bool:
    """Whether the rerun has come as far as the recorded conversation, which waits for an answer to this call."""
    return any(
        before[place].result is None and after[other].call.call_id == ended_at.call_id for place, other in pairs.items()
    )


def _is_repeated(before: RecordedCall, after: RecordedCall) -> bool:
    """Whether the call is made as it was before a person corrected it."""
    if before.is_denied:
        return True
    return before.edited_arguments is not None and same_json(before.call.arguments, after.call.arguments)


def _correction(call: RecordedCall) -> str:
    if call.edited_arguments is None:
        return "a person denied it"
    return f"a person made it {_call_text(call.call.model_copy(update={'arguments': call.edited_arguments}))}"


def _sum_ratio(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    known = [(before, after) for before, after in pairs if before is not None and after is not None]
    total = sum(before for before, _ in known)
    if not total:
        return None
    return sum(after for _, after in known) / total


def _known_tokens(conversation: Recorded) -> int | None:
    """None if they are not known: a case holds none, and some servers report none."""
    return conversation.usage.total_tokens or None


def _display_name(comparison: Comparison) -> str:
    name = comparison.recorded.id
    if comparison.at_turn is not None:
        name += f" turn {comparison.at_turn}"
    if comparison.sample > 1:
        name += f" #{comparison.sample}"
    return name


def _table_row(comparison: Comparison) -> list[str]:
    recorded = comparison.recorded
    rerun = comparison.rerun
    counts = " > ".join(str(len(_calls_of(conversation, comparison.at_turn))) for conversation in (recorded, rerun))
    if comparison.at_turn is not None:
        return [_display_name(comparison), comparison.verdict, counts, "", "", ""]
    tokens = [str(_known_tokens(conversation) or "?") for conversation in (recorded, rerun)]
    costs = ["?" if cost is None else f"{cost:.4f}" for cost in (recorded.cost_usd, rerun.cost_usd)]
    return [
        _display_name(comparison),
        comparison.verdict,
        counts,
        f"{recorded.turns} > {rerun.turns}",
        " > ".join(tokens),
        " > ".join(costs),
    ]


def _markdown_cell(text: str) -> str:
    return code(text).replace("|", "\\|")


def _call_text(call: ToolCall) -> str:
    written = json.dumps(call.arguments, ensure_ascii=False)
    if len(written) > ARGUMENT_CHARS:
        written = written[: ARGUMENT_CHARS - 3] + "..."
    return f"{call.name}({written})"
