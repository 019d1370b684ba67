"""A model's name becomes an address and a key, or an error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.errors import InvalidModel, InvalidSetting, KeyMissing, KeyRefused
from everturn.models import Model
from everturn.providers.catalog import PROVIDERS, ModelEndpoint, address_variable, resolve_endpoint

KEY = "sk-secret-0123456789"
KEYS = {name: KEY for row in PROVIDERS.values() for name in row.keys}
NEEDED = {
    "AZURE_BASE_URL": "https://acme.openai.azure.com/openai/v1",
    "SCRIPTED_BASE_URL": "http://127.0.0.1:1/v1",
    "OPENRESPONSES_BASE_URL": "http://127.0.0.1:2/v1",
}


def endpoint(model: str | Model, **environ: str) -> ModelEndpoint:
    return resolve_endpoint(Model(model) if isinstance(model, str) else model, environ=environ)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_resolves_with_its_key_set(provider: str) -> None:
    found = endpoint(f"{provider}:some-model", **KEYS, **NEEDED)
    assert found.provider == provider
    assert found.model == f"{provider}:some-model"
    assert found.secret == (KEY if PROVIDERS[provider].keys else "")


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("openai", "OPENAI_BASE_URL"),
        ("openai-chat", "OPENAI_BASE_URL"),
        ("groq", "GROQ_BASE_URL"),
        ("xai", "XAI_BASE_URL"),
    ],
)
def test_a_variable_moves_the_base_url(provider: str, variable: str) -> None:
    assert address_variable(provider) == variable
    assert endpoint(f"{provider}:m", **{variable: "http://proxy:8080/v1"}).base_url == "http://proxy:8080/v1"


def test_an_openresponses_server_may_take_a_key_or_none() -> None:
    with pytest.raises(InvalidSetting, match="OPENRESPONSES_BASE_URL"):
        endpoint("openresponses:m")
    assert endpoint("openresponses:m", OPENRESPONSES_BASE_URL="http://h/v1").secret == ""
    assert endpoint(Model("openresponses:m", base_url="http://h/v1"), OPENRESPONSES_API_KEY=KEY).secret == KEY
    with pytest.raises(KeyMissing, match="MY_KEY"):
        endpoint(Model("openresponses:m", base_url="http://h/v1", key_env="MY_KEY"))


def test_what_the_model_says_wins_over_the_environment() -> None:
    model = Model("groq:m", base_url="http://mine/v1", key_env="MY_KEY")
    found = endpoint(model, GROQ_BASE_URL="http://other/v1", GROQ_API_KEY="other", MY_KEY=KEY)
    assert (found.base_url, found.secret, found.key_env) == ("http://mine/v1", KEY, "MY_KEY")


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://one/v1", "http://two/v1"):
        monkeypatch.setenv("SCRIPTED_BASE_URL", url)
        assert resolve_endpoint(Model("scripted:demo")).base_url == url


@pytest.mark.parametrize(
    ("model", "environ", "error", "words"),
    [
        ("opnai:m", {}, InvalidModel, ["'opnai'", "Did you mean 'openai'?", "groq", "ollama"]),
        ("Groq:m", {}, InvalidModel, ["Did you mean 'groq'?"]),
        ("nobody:m", {}, InvalidModel, ["'nobody'", "Known providers: openai, "]),
        ("anthropic:m", {}, KeyMissing, ["ANTHROPIC_API_KEY is not set"]),
        ("groq:m", {}, KeyMissing, ["'groq:m'", "GROQ_API_KEY", "worker's environment"]),
        ("groq:m", {"GROQ_API_KEY": " \n"}, KeyMissing, ["GROQ_API_KEY"]),
        ("huggingface:m", {}, KeyMissing, ["HF_TOKEN"]),
        ("azure:m", {"AZURE_OPENAI_API_KEY": KEY}, InvalidSetting, ["AZURE_OPENAI_BASE_URL", "openai.azure.com"]),
        ("azure:m", {"AZURE_BASE_URL": "https://a/openai/v1"}, KeyMissing, ["AZURE_OPENAI_API_KEY"]),
        ("scripted:m", {}, InvalidSetting, ["SCRIPTED_BASE_URL"]),
        ("ollama:m", {"OLLAMA_BASE_URL": "localhost:11434"}, InvalidSetting, ["OLLAMA_BASE_URL", "'localhost:11434'"]),
        ("ollama:m", {"OLLAMA_BASE_URL": "http://h:99999/v1"}, InvalidSetting, ["OLLAMA_BASE_URL"]),
        ("ollama:m", {"OLLAMA_BASE_URL": "http://[h/v1"}, InvalidSetting, ["OLLAMA_BASE_URL"]),
        (Model("openai-chat:m", key_env="MY_KEY"), {"OPENAI_API_KEY": KEY}, KeyMissing, ["MY_KEY"]),
        (Model("ollama:m", base_url="ftp://h"), {}, InvalidSetting, ["Model(base_url=)"]),
        ("groq:m", {"GROQ_API_KEY": "sk-\nsecret"}, KeyRefused, ["GROQ_API_KEY"]),
        ("groq:m", {"GROQ_API_KEY": "schlüssel"}, KeyRefused, ["GROQ_API_KEY"]),
    ],
)
def test_what_is_missing_or_wrong_is_named_with_its_cure(
    model: str | Model, environ: dict[str, str], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as raised:
        endpoint(model, **environ)
    for word in words:
        assert word in str(raised.value)
    for key in (KEY, "secret", "schlüssel"):
        assert key not in str(raised.value)


def test_a_server_of_ones_own_may_do_without_a_key() -> None:
    found = endpoint(Model("openai-chat:qwen", base_url="http://localhost:8000/v1"))
    assert found.secret == ""
    assert "Authorization" not in found.key_headers()
    assert found.key_env == "OPENAI_API_KEY"


def test_the_key_goes_into_the_header_and_never_into_a_repr() -> None:
    found = endpoint("groq:m", GROQ_API_KEY=f"{KEY}\n")
    assert found.key_headers() == {"Authorization": f"Bearer {KEY}"}
    assert endpoint("azure:m", **KEYS, **NEEDED).key_headers() == {"api-key": KEY}
    for shown in (repr(found), str(found), f"{found}", repr([found])):
        assert KEY not in shown


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h:81", "http://h:81/chat/completions"),
        ("https://a/deployments/d?api-version=2", "https://a/deployments/d/chat/completions?api-version=2"),
    ],
)
def test_the_path_goes_behind_the_base_url_and_before_its_query(base_url: str, url: str) -> None:
    assert endpoint("ollama:m", OLLAMA_BASE_URL=base_url).url_of("/chat/completions") == url


@pytest.mark.parametrize("variable", ["AZURE_OPENAI_BASE_URL", "AZURE_BASE_URL"])
@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://a.openai.azure.com", "https://a.openai.azure.com/openai/v1/chat/completions"),
        ("https://a.openai.azure.com/openai/v1/", "https://a.openai.azure.com/openai/v1/chat/completions"),
        (
            "https://a/openai/deployments/my-gpt?api-version=2024-10-21",
            "https://a/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21",
        ),
        (
            "https://a/openai/deployments/?api-version=2024-10-21",
            "https://a/openai/deployments/gpt%205/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_azures_address_is_taken_in_every_form(variable: str, base_url: str, url: str) -> None:
    found = endpoint("azure:gpt 5", AZURE_OPENAI_API_KEY=KEY, **{variable: base_url})
    assert found.url_of("/chat/completions") == url
    assert found.key_headers() == {"api-key": KEY}


def test_vllm_takes_a_key_only_where_one_is_named() -> None:
    assert endpoint("vllm:qwen3").url_of("/chat/completions") == "http://localhost:8000/v1/chat/completions"
    assert endpoint(Model("vllm:qwen3", key_env="MY_KEY"), MY_KEY=KEY).secret == KEY


def test_a_query_in_the_base_url_joins_that_of_the_path() -> None:
    found = endpoint("google:m", GEMINI_API_KEY=KEY, GOOGLE_BASE_URL="http://h/?tenant=a")
    assert found.url_of("/v1beta/models/m:x?alt=sse") == "http://h/v1beta/models/m:x?alt=sse&tenant=a"


@pytest.mark.parametrize("name", [".env.example", "docker-compose.yml"])
def test_who_runs_a_worker_is_told_of_every_providers_key(name: str) -> None:
    text = (Path(__file__).parents[2] / name).read_text()
    assert [
        row.keys[0] for row in PROVIDERS.values() if row.keys and not row.key_optional and row.keys[0] not in text
    ] == []
