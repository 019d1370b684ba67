"""Logs, each in a process of its own: configuring them is for a whole process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import textwrap

import pytest

from everturn.text.printable import printable
from tests.support import prepared

# CONTRACT.md's list.
KEYS = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "XAI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY",
    "MOONSHOT_API_KEY",
    "HF_TOKEN",
    "OPENROUTER_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "TEMPORAL_API_KEY",
]


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    header = "import logging\nfrom everturn import logs\nlog = logs.get_logger('everturn.test')\n"
    return prepared.run("-c", header + textwrap.dedent(program), check=True, env={**os.environ, **environment})


def lines(program: str, **environment: str) -> list[dict[str, object]]:
    """What is logged, as JSON; nothing goes to stdout."""
    done = run("logs.configure(format='json')\n" + textwrap.dedent(program), **environment)
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_line_is_an_event_and_its_facts() -> None:
    [line] = lines("log.info('turn.finished', turn=3, model='scripted:x', seconds=2.4)")
    assert line.pop("timestamp")
    assert line == {"event": "turn.finished", "level": "info", "turn": 3, "model": "scripted:x", "seconds": 2.4}


def test_facts_may_have_the_names_of_a_log_records_own_fields() -> None:
    [line] = lines("log.info('tool.called', name='refund', args={'a': 1}, message='100%', module='m')")
    assert (line["name"], line["args"], line["message"], line["module"]) == ("refund", {"a": 1}, "100%", "m")


def test_what_is_bound_to_the_context_is_in_every_line() -> None:
    [line] = lines("""
        from structlog.contextvars import bind_contextvars
        bind_contextvars(conversation='order-81', call='c1')
        log.info('tool.called')
    """)
    assert (line["conversation"], line["call"]) == ("order-81", "c1")


@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
def test_a_line_says_what_it_is_about_before_what_it_says_of_it(seed: str) -> None:
    (line,) = lines(
        """
        import structlog
        structlog.contextvars.bind_contextvars(turn=2)
        structlog.contextvars.bind_contextvars(attempt=1, call='call_1_0')
        structlog.contextvars.bind_contextvars(conversation='order-81')
        log.info('tool.finished', tool='send_letter', failed=False)
        """,
        PYTHONHASHSEED=seed,
    )
    order = [name for name in line if name in ("conversation", "turn", "tool", "call", "attempt", "failed")]
    assert order == ["conversation", "turn", "tool", "call", "attempt", "failed"]


def test_all_loggers_have_one_form() -> None:
    found = lines("""
        import structlog
        logging.getLogger('some.library').warning('%d things', 3)
        structlog.get_logger().info('tool.of_the_user', size=3)
    """)
    assert [line["event"] for line in found] == ["3 things", "tool.of_the_user"]
    assert found[0]["logger"] == "some.library"
    assert found[1]["size"] == 3


def test_a_line_for_people_is_short_and_on_one_line() -> None:
    done = run("logs.configure()\nlog.warning('call.waiting', tool='refund', why='a\\nb')")
    assert done.stderr.splitlines()[0].endswith("[warning  ] call.waiting tool=refund why='a\\nb'")
    assert len(done.stderr.splitlines()) == 1


def test_httpx_and_debug_lines_of_temporal_stay_out_even_at_debug() -> None:
    """They print what is in requests, and payloads."""
    done = run("""
        logs.configure(level='debug')
        logging.getLogger('httpx').info('HTTP Request')
        logging.getLogger('httpcore.connection').debug('headers')
        logging.getLogger('temporalio.worker._activity').debug('Completing activity with completion')
        log.debug('prefix.found')
    """)
    assert [line.split("] ")[1] for line in done.stderr.splitlines()] == ["prefix.found"]


@pytest.mark.parametrize("form", ["console", "json"])
def test_no_key_leaves_wherever_it_stands(form: str) -> None:
    secrets = {name: f"sk-secret-{number}-éé" for number, name in enumerate(KEYS)}
    done = run(
        f"""
        import os
        logs.configure(format={form!r})
        for name in {KEYS!r}:
            value = os.environ[name]
            log.info('x.happened', where=['deep', {{'in': f'Bearer {{value}}'}}])
            logging.getLogger('other').warning('%s', value)
            try:
                raise RuntimeError(value)
            except RuntimeError:
                log.exception('x.failed')
        """,
        **secrets,
    )
    assert "secret" not in done.stderr
    for name in KEYS:
        assert done.stderr.count(f"<{name}>") >= 3


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_key_of_several_lines_is_scrubbed(form: str) -> None:
    key = "-----BEGIN KEY-----\nMIIEsecret0123\nsecret4567==\n-----END KEY-----\n"
    done = run(
        f"""
        import os
        logs.configure(format={form!r})
        key = os.environ['TEMPORAL_TLS_CLIENT_KEY_DATA']
        log.info('key.loaded', key=key)
        logging.getLogger('some.library').warning(key)
        """,
        TEMPORAL_TLS_CLIENT_KEY_DATA=key,
    )
    assert "key.loaded" in done.stderr
    assert "secret" not in done.stderr


def test_a_key_set_after_the_logs_were_configured_is_scrubbed_too() -> None:
    [line] = lines("import os; os.environ['MY_SERVER_API_KEY'] = 'abcdefgh'\nlog.info('x.happened', url='?k=abcdefgh')")
    assert line["url"] == "?k=<MY_SERVER_API_KEY>"


def test_a_traceback_shows_no_variables() -> None:
    done = run("""
        logs.configure()
        def f():
            prompt = 'what the user ' + 'said'
            1 / 0
        try:
            f()
        except ZeroDivisionError:
            log.exception('x.failed')
    """)
    assert "ZeroDivisionError" in done.stderr
    assert "what the user said" not in done.stderr


def test_in_a_program_that_uses_us_lines_are_ordinary_records() -> None:
    """Nothing configured: the program's own handlers and format decide."""
    done = run("""
        logging.basicConfig(format='%(levelname)s %(name)s %(message)s', level='INFO')
        log.info('turn.finished', turn=3)
        log.debug('not.shown')
    """)
    assert done.stderr == "INFO everturn.test turn.finished turn=3\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("ApplicationError('the provider said no')", False),
        ("errors.RateLimited('the provider said no')", False),
        ("KeyError('a bug')", True),
    ],
)
def test_temporals_traceback_is_kept_for_bugs_only(error: str, shown: bool) -> None:
    """A failing tool or model call is normal, and has a line of ours."""
    done = run(f"""
        from temporalio.exceptions import ApplicationError
        from everturn import errors
        logs.configure()
        try:
            raise {error}
        except Exception:
            logging.getLogger('temporalio.activity').warning(
                "Completing activity as failed ({{'activity_id': '1'}})",
                exc_info=True,
                extra={{
                    '__temporal_error_identifier': 'ActivityFailure',
                    'temporal_activity': {{'workflow_id': 'order-81', 'activity_type': 'refund', 'attempt': 2}},
                }},
            )
    """)
    assert ("Traceback" in done.stderr) is shown
    assert ("conversation=order-81 activity=refund attempt=2" in done.stderr) is shown
    assert "activity_id" not in done.stderr


@pytest.mark.parametrize(
    ("activity", "error", "shown"),
    [
        ("call_model", "ApplicationError('no key')", False),
        ("call_model", "KeyError('a bug')", True),
        ("a_users_own", "ApplicationError('theirs')", True),
    ],
)
def test_a_program_that_configures_nothing_is_spared_the_traceback_of_a_model_turn(
    activity: str, error: str, shown: bool
) -> None:
    done = run(f"""
        from temporalio.exceptions import ApplicationError
        from everturn.worker.hosting import leave_out_model_tracebacks
        leave_out_model_tracebacks()
        try:
            raise {error}
        except Exception:
            logging.getLogger('temporalio.activity').warning(
                "Completing activity as failed",
                exc_info=True,
                extra={{
                    '__temporal_error_identifier': 'ActivityFailure',
                    'temporal_activity': {{'activity_type': '{activity}'}},
                }},
            )
    """)
    assert ("Traceback" in done.stderr) is shown


HOSTILE = "\x1b]0;owned\x07\x9b31m\u202egnp.exe\u200b\u2028\ud800\x7f\U000e0041"

SAYS_HOSTILE_THINGS = f"""
    hostile = {HOSTILE!r}
    log.info('tool.called', tool=hostile, many=[hostile], by={{hostile: hostile}}, spaced='a b ' + hostile)
    log.info('tool.called', **{{hostile: 1}})
    log.info('tool.called', value=type('Value', (), {{'__repr__': lambda self: hostile}})())
    log.warning(hostile)
    logging.getLogger(hostile).warning('from %s', hostile)
    logging.getLogger('temporalio.worker').warning('failed', extra={{'temporal_activity': {{'workflow_id': hostile}}}})
    try:
        raise ValueError(hostile)
    except ValueError:
        log.exception('tool.failed', tool=hostile)
"""


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize("color", ["", "1"])
def test_nothing_in_a_line_moves_a_terminal_or_hides_from_it(form: str, color: str) -> None:
    program = f"import sys; sys.stderr.isatty = lambda: {bool(color)}; logs.configure(format={form!r})"
    done = run(f"{program}\n{textwrap.dedent(SAYS_HOSTILE_THINGS)}")
    told = re.sub(r"\x1b\[\d*(;\d+)*m", "", done.stderr) if color and form == "console" else done.stderr
    assert [f"U+{ord(one):04X}" for one in told if one != "\n" and printable(one) != one] == []
    assert "\\u202egnp.exe" in told
    if form == "json":
        first = json.loads(told.splitlines()[0])
        assert first["tool"] == HOSTILE, "the same value, for programs"


def test_a_line_break_does_not_begin_a_line_of_ours() -> None:
    done = run("""
        logs.configure()
        forged = '12:00:00 [info     ] payment.approved'
        logging.getLogger('some.library').warning('a\\n%s', forged)
        log.info('tool.called', tool='b\\n' + forged)
    """)
    assert not any(line.startswith("12:00:00 [info     ] payment") for line in done.stderr.splitlines())
    assert "    12:00:00 [info     ] payment.approved" in done.stderr
