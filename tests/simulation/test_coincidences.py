"""What was found by what comes in one workflow task, each by its world."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.world import GROUPS, WILD, Draw, run

OF_THE_SIMULATION = pytest.mark.long
"""What was wrong there was a rule, or the simulated SDK, and not everturn: no bug of everturn's is found by them."""


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(34, id="cancel_turn-and-a-reply"),  # its history never closed the reply's calls
        pytest.param(72, id="cancel_turn-and-a-reply-whose-calls-wait"),
        pytest.param(11, id="close-a-message-and-a-reply"),
    ],
)
def test_what_was_found_stays_mended(seed: int) -> None:
    assert run(seed, draw=replace(Draw.of(seed), coincidences=0.3)).broken == []


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(WILD + 178, id="decisions-while-another-is-checked"),  # by the history, they came for nothing
        pytest.param(WILD + 96, id="an-edit-of-a-local-call-that-does-not-fit"),  # nobody was asked anew by the events
        pytest.param(WILD + 149, id="a-decision-on-a-call-that-is-decided"),  # by the history, it was taken
        pytest.param(WILD + 82, id="a-stalled-turn-that-is-asked-again-in-the-next-run"),  # its results were told twice
        # And the next resume asked the agent's own. A large world: it takes seconds.
        pytest.param(WILD + 14, id="the-chosen-model-fails", marks=pytest.mark.long),
        pytest.param(WILD + 182, id="results-come-as-it-closes"),  # by the history, it answered on
        pytest.param(2_005_127, id="a-reply-while-ids-are-forgotten"),  # reply() had the answer to the message before
        pytest.param(2_005_362, id="two-resume-one-stall"),  # the second was kept, and resumed the next one
        pytest.param(2_006_130, id="a-resume-and-a-pause-after-it"),  # by the history, it was not paused
        pytest.param(2_005_116, id="a-turn-is-cancelled-before-its-agent-has-begun"),  # its workflow task failed
        pytest.param(WILD + 792, id="a-paused-turn-is-cancelled"),  # lists showed it as paused until it was over
        pytest.param(WILD + 1186, id="a-reset-sends-resume-again"),  # by the history, before its turn had failed
        pytest.param(1_002_043, id="a-call-expires-together-with-a-pause-as-the-run-is-long"),
        pytest.param(4_000_048, id="paused-as-another-agent-takes-over"),  # lists showed the one before
        # By the history, the turn that was begun and cancelled in one workflow task did not count.
        pytest.param(1_000_580, id="a-stalled-turn-and-its-workflow-are-cancelled-at-once"),
        pytest.param(1_000_249, id="terminated-as-it-closes-with-a-message"),  # who revived it lost that message
        # Its outcome had neither the reply nor what that had cost.
        pytest.param(1_010_338, id="a-turn-and-its-workflow-are-cancelled-and-then-the-reply-comes"),
        # By the history, it answered on while its results were made fit for the next run.
        pytest.param(1_013_462, id="a-turn-fails-as-it-closes-with-a-message-and-large-results"),
        # The simulation's rule did not count a turn that was given up as it closed, if a message took it up again.
        pytest.param(1_011_223, id="a-turn-fails-as-it-closes-with-a-message", marks=OF_THE_SIMULATION),
        # The simulation's rule looked for the results of a turn that has left no event.
        pytest.param(
            1_012_424, id="a-turn-with-results-is-begun-and-its-workflow-cancelled-at-once", marks=OF_THE_SIMULATION
        ),
        # The simulation's rule took the model that was fallen back to for the one of a turn that was to come.
        pytest.param(1_011_950, id="a-model-fails-as-its-workflow-is-cancelled", marks=OF_THE_SIMULATION),
        # Its model was asked once more, though nobody had said anything.
        pytest.param(1_012_152, id="closed-as-a-summary-comes"),
        # The simulation's rule wanted the words of a try that another one had taken the place of.
        pytest.param(11_000_719, id="lost-and-cut-short-before-the-next-try-has-said-a-word", marks=OF_THE_SIMULATION),
        # The simulated SDK replayed the ends of local activities in another order than SDK 1.35 does.
        pytest.param(8_000_271, id="quick-tools-fail-in-another-order-than-they-began", marks=OF_THE_SIMULATION),
        # By the history, the reply was open until the next turn, and no result was recorded.
        pytest.param(7_000_166, id="a-check-lets-a-call-run-after-a-close"),
        pytest.param(7_002_692, id="a-check-lets-a-call-run-after-a-close-and-a-message"),
        pytest.param(8_000_608, id="local-tools-wait-for-their-next-tries-in-another-order"),
    ],
)
def test_what_worlds_that_are_about_something_found_stays_mended(seed: int) -> None:
    assert run(seed).broken == []


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            4_000_398, id="a-handoff-is-approved-after-its-turn-was-cancelled"
        ),  # by the history, it was taken
        pytest.param(4_000_023, id="a-handoffs-check-ends-as-its-turn-is-cancelled"),
        pytest.param(4_000_050, id="a-reply-that-hands-over-comes-as-it-closes"),  # by the history, it was not taken
        pytest.param(4_000_031, id="calls-that-do-not-begin-since-it-closes"),  # by the history, the answer went on
        pytest.param(4_000_803, id="the-workflow-is-cancelled-as-a-message-waits"),  # by the history, it was begun on
        pytest.param(4_001_026, id="a-message-while-it-closes"),  # reply() had the answer to the message before
    ],
)
def test_what_worlds_of_handoffs_found_stays_mended(seed: int) -> None:
    assert run(seed).broken == []


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            100_615, id="a-model-is-chosen-while-a-turn-waits-for-a-worker"
        ),  # by the history, it was forgotten
        pytest.param(
            100_343, id="a-message-revives-what-somebody-has-just-watched-to-its-end", marks=OF_THE_SIMULATION
        ),  # the simulation's rule
        # By the history, it was over; by itself, it began the call again, or its answer went on.
        pytest.param(50_229, id="closed-while-a-once-call-waits-for-a-worker"),
        pytest.param(
            200_863, id="a-reset-goes-back-to-before-the-reset-before-it", marks=OF_THE_SIMULATION
        ),  # the simulation's rule
        pytest.param(100_059, id="nobody-hosts-the-agent-of-a-call", marks=OF_THE_SIMULATION),  # the simulation's rule
        pytest.param(
            1_306, id="an-edit-does-not-fit-as-all-calls-are-approved"
        ),  # by history and events, it was approved
        # The simulation's rule gave who watches too little time for that.
        pytest.param(7_011, id="slow-requests-one-after-the-other-on-the-way-over-a-reset", marks=OF_THE_SIMULATION),
        pytest.param(8_457, id="slow-requests-on-the-way-over-another-reset"),
        # A worker was lost while it ran the call, the next one lacked the tool, and then the turn was cancelled.
        pytest.param(10_846, id="lost-handed-back-and-cut-short"),  # the model was told without a doubt
        # The simulation's rule looked for the summary in what was asked before it.
        pytest.param(7_230, id="a-message-is-too-long-before-its-first-summary", marks=OF_THE_SIMULATION),
        pytest.param(11_195, id="a-result-is-too-long-before-its-first-summary"),
        # The simulation's rule, too: it took a turn more than the limit and its conclusion.
        pytest.param(8_860, id="the-concluding-turn-is-too-long-without-a-summary", marks=OF_THE_SIMULATION),
        pytest.param(
            10_429, id="the-concluding-turn-is-cancelled-and-a-message-makes-room"
        ),  # by the history, nobody answered that
        pytest.param(
            7_684, id="a-concluding-turn-that-is-too-long-and-whose-summary-fails", marks=OF_THE_SIMULATION
        ),  # the simulation's rule
        pytest.param(11_428, id="an-approval-in-the-moment-of-the-expiry"),  # by the history, the clock had denied it
        pytest.param(6_008, id="an-edit-in-the-moment-of-the-expiry"),
        # The simulated server left open what the reset run had continued as, and who followed that waited for ever.
        pytest.param(11_825, id="a-reset-of-a-run-that-has-just-continued-as-new", marks=OF_THE_SIMULATION),
        # The simulation's rule forgot that arguments are then looked at as the tool runs.
        pytest.param(15_139, id="workers-are-lost-with-a-reply-whose-arguments-do-not-fit", marks=OF_THE_SIMULATION),
        pytest.param(
            2_216, id="a-call-that-ran-before-a-reset-is-denied-after-it", marks=OF_THE_SIMULATION
        ),  # the simulation's rule
        pytest.param(2_988, id="a-reply-is-asked-for-after-the-end-of-one-that-was-cut-short"),  # an earlier one came
        pytest.param(
            17_412, id="a-fork-is-over-before-anybody-says-anything-there", marks=OF_THE_SIMULATION
        ),  # the simulation started it anew
        # The simulated SDK recorded that it had failed; see test_drain.py.
        pytest.param(20_383, id="a-local-tool-is-cut-off-by-a-worker-that-stops", marks=OF_THE_SIMULATION),
        # The simulation's rule counted its turns with those from before.
        pytest.param(32_903, id="a-message-comes-while-it-closes-beyond-its-limit", marks=OF_THE_SIMULATION),
        # The simulated worker held its task for longer than a task may take, and then had another one of that run.
        pytest.param(30_297, id="a-local-tool-takes-longer-than-its-workflow-task", marks=OF_THE_SIMULATION),
        # The next answer had fewer chances to mend its output; by the history, it had all of them.
        pytest.param(30_675, id="it-is-closed-together-with-the-last-reply-that-may-be-mended"),
        pytest.param(14_648, id="a-question-expires-while-it-is-paused"),  # by the history, it was approved
        # A turn that stalled was asked again as it was, however long after the limit of time it was resumed.
        pytest.param(9_097, id="resumed-after-the-limit-of-time"),
        pytest.param(38_133, id="resumed-again-and-again-after-the-limit-of-time"),
        pytest.param(53_049, id="a-turn-is-too-long-as-it-closes"),  # by the history, it went on
        pytest.param(23_008, id="nobody-hosts-a-tool-as-it-closes"),  # by the history, it stalled
        # By the events, it was resumed: that was about the pause before.
        pytest.param(11_720, id="a-pause-ends-in-the-workflow-task-that-brings-a-stall"),
        # Its events told a stall of a turn that was cancelled.
        pytest.param(38_602, id="a-turn-fails-after-it-was-cancelled"),
        # The model was told that it had not run.
        pytest.param(39_740, id="a-call-whose-tries-ran-out-of-time-and-that-nobody-hosts-then"),
        # The fork had more corrections than an answer may have.
        pytest.param(3_021, id="a-fork-of-an-answer-that-was-corrected"),
        pytest.param(974_663, id="a-fork-of-an-answer-that-was-corrected-and-closed"),
        # By the history, its results were none of the transcript.
        pytest.param(975_412, id="a-turn-is-cancelled-as-its-results-are-made-fit-for-the-next-run"),
        # By the history, it was corrected all the same.
        pytest.param(22_000_019, id="a-reply-that-does-not-fit-comes-together-with-the-end-of-its-turn"),
        # It ended as failed, and who waited was told that the reply does not fit.
        pytest.param(989_245, id="a-correction-that-does-not-fit-comes-whole-after-its-turn-was-cancelled"),
        pytest.param(532, id="a-concluding-turn-stalls-and-its-workflow-is-cancelled"),  # it had a limit ever after
    ],
)
def test_what_worlds_by_name_found_stays_mended(seed: int) -> None:
    assert run(seed).broken == []


def test_results_are_told_as_those_of_their_turn_through_a_summary_and_a_new_run() -> None:
    assert run(162).broken == []


def test_wild_worlds_are_each_about_something() -> None:
    assert {Draw.of(seed).situation for seed in range(20)} == {""}
    for begin, group in zip(range(WILD, 9 * WILD, WILD), GROUPS, strict=False):
        assert {Draw.of(seed).situation for seed in range(begin, begin + 20)} == {*group}
    assert any(run(seed).counts.get("coincidences") for seed in range(WILD, WILD + 5))
