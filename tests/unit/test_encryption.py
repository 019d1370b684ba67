"""The payload codec that encrypts: what it writes, what it reads, where its keys come from."""

from __future__ import annotations

import os
import shlex
import sys
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)

from everturn import Encryption
from everturn.errors import InvalidSetting
from everturn.records import ToolResult
from everturn.settings import Settings
from everturn.sizes import CODEC_BYTES, MAX_KEY_ID_CHARS, MAX_PAYLOAD_BYTES, SUMMARY_BYTES, TEMPORAL_PAYLOAD_BYTES
from everturn.storage.artifacts import Artifacts, name_of
from everturn.storage.codecs import Codecs, encryption_of, with_encryption
from everturn.storage.data_converter import configured_converter, data_converter
from everturn.storage.encryption import key_id_of, read_keys
from tests.support.bounds import Bounds

OLD, NEW = b"o" * 32, b"n" * 32
SUMMARY_LIMIT = 400
"""Temporal's, for a summary with all that is around it."""


def plain(data: bytes = b'"It is a secret."') -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


async def encoded(codec: PayloadCodec, payload: Payload) -> Payload:
    (made,) = await codec.encode([payload])
    return made


async def decoded(codec: PayloadCodec, payload: Payload) -> Payload:
    (made,) = await codec.decode([payload])
    return made


def written(**keys: bytes) -> str:
    return ",".join(f"{key_id}:{b64encode(key).decode()}" for key_id, key in keys.items())


async def test_what_is_encrypted_is_read_again_and_holds_nothing_readable() -> None:
    encryption = Encryption({"new": NEW})
    made = await encoded(encryption, plain())
    assert b"secret" not in made.SerializeToString()
    assert b"json" not in made.SerializeToString()
    assert key_id_of(made) == "new"
    assert await decoded(encryption, made) == plain()
    assert await encoded(encryption, plain()) != made  # each has a nonce of its own


async def test_temporals_own_samples_write_and_read_the_same() -> None:
    """encryption/codec.py of samples-python, and its like in Go and TypeScript: nonce, then the text with its tag."""
    aes, nonce = AESGCM(NEW), os.urandom(12)
    theirs = Payload(
        metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"new"},
        data=nonce + aes.encrypt(nonce, plain().SerializeToString(), None),
    )
    assert await decoded(Encryption({"new": NEW}), theirs) == plain()
    ours = await encoded(Encryption({"new": NEW}), plain())
    assert Payload.FromString(aes.decrypt(ours.data[:12], ours.data[12:], None)) == plain()


async def test_the_first_key_encrypts_and_all_decrypt() -> None:
    before = await encoded(Encryption({"old": OLD}), plain())
    rotated = Encryption({"new": NEW, "old": OLD})
    assert await decoded(rotated, before) == plain()
    assert key_id_of(await encoded(rotated, plain())) == "new"
    assert rotated.key_ids == ("new", "old")


async def test_a_key_that_is_missing_is_named() -> None:
    made = await encoded(Encryption({"old": OLD}), plain())
    with pytest.raises(InvalidSetting, match=r"encrypted with the key 'old', which this process does not have.*'new'"):
        await decoded(Encryption({"new": NEW}), made)


@pytest.mark.parametrize("spoil", ["data", "nonce", "other key", "short"])
async def test_what_was_changed_is_refused(spoil: str) -> None:
    made = await encoded(Encryption({"k": NEW}), plain())
    data = bytearray(made.data)
    match spoil:
        case "data":
            data[-1] ^= 1
        case "nonce":
            data[0] ^= 1
        case "short":
            data = data[:7]
    made.data = bytes(data)
    with pytest.raises(InvalidSetting, match="can't be decrypted with the key 'k'"):
        await decoded(Encryption({"k": OLD if spoil == "other key" else NEW}), made)


async def test_what_is_not_encrypted_is_read_as_it_is() -> None:
    assert await decoded(Encryption({"k": NEW}), plain()) == plain()
    hostile = Payload(metadata={"encoding": b"binary/encrypted"}, data=b"x")
    with pytest.raises(InvalidSetting, match="encrypted with the key ''"):
        await decoded(Encryption({"k": NEW}), hostile)


async def test_what_encryption_adds_is_in_the_ledger() -> None:
    for compression in ("none", "zstd"):
        encryption = Encryption({"k" * MAX_KEY_ID_CHARS: NEW}, compression=compression)  # type: ignore[arg-type]
        for data in (b"", os.urandom(5_000), os.urandom(MAX_PAYLOAD_BYTES)):
            added = (await encoded(encryption, plain(data))).ByteSize() - plain(data).ByteSize()
            assert added <= CODEC_BYTES
    assert MAX_PAYLOAD_BYTES + CODEC_BYTES < TEMPORAL_PAYLOAD_BYTES
    assert plain(b"x" * SUMMARY_BYTES).ByteSize() + CODEC_BYTES <= SUMMARY_LIMIT + 40
    longest = await encoded(Encryption({"k" * MAX_KEY_ID_CHARS: NEW}), plain(b"x" * SUMMARY_BYTES))
    assert longest.ByteSize() <= SUMMARY_LIMIT


async def test_zstd_makes_large_payloads_small_and_is_read_by_whoever_has_the_key() -> None:
    large = plain(b'"' + b"again and " * 20_000 + b'"')
    made = await encoded(Encryption({"k": NEW}, compression="zstd"), large)
    assert made.ByteSize() < 2_000
    assert await decoded(Encryption({"k": NEW}), large) == large
    assert await decoded(Encryption({"k": NEW}), made) == large


async def test_a_payload_that_grows_beyond_any_bound_is_refused(bounds: Bounds) -> None:
    bounds(decompressed_bytes=10_000)
    made = await encoded(Encryption({"k": NEW}, compression="zstd"), plain(b"0" * 100_000))
    with pytest.raises(ValueError, match="can't be decompressed"):
        await decoded(Encryption({"k": NEW}), made)


# ---------------------------------------------------------------- keys


def test_keys_are_written_with_their_ids() -> None:
    text = f" 2026-11:{b64encode(NEW).decode()},\n2026.05:{urlsafe_b64encode(OLD).decode()}\n"
    assert read_keys(text, source="it") == {"2026-11": NEW, "2026.05": OLD}


SECRET = b64encode(b"hush" * 8).decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it holds no key"),
        (SECRET, "Item 1 of it is not id:key"),
        (f"a b:{SECRET}", "Item 1 of it"),
        (f"{'k' * 41}:{SECRET}", "Item 1 of it"),
        (f"k:{SECRET},k:{SECRET}", "two keys with the id 'k'"),
        (f"k:{SECRET[:-4]}", "'k' in it has 30 bytes"),
        (f"k:{SECRET}!", "'k' in it is not base64"),
    ],
)
def test_keys_that_are_none_are_refused_and_never_shown(text: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said) as refused:
        read_keys(text, source="it")
    assert SECRET[:20] not in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "said"),
    [({}, "no key"), ({"a b": NEW}, "not a key id"), ({"k": b"short"}, "has 5 bytes"), ({"k": "x" * 32}, "bytes")],
)
def test_keys_given_in_code_are_checked(keys: dict[str, bytes], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        Encryption(keys)


def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Encryption.of_settings(Settings.load()) is None
    assert configured_converter() is data_converter
    monkeypatch.setenv("EVERTURN_ENCRYPTION_KEYS", written(new=NEW, old=OLD))
    converter = configured_converter()
    assert isinstance(converter.payload_codec, Encryption)
    assert converter.payload_codec.key_ids == ("new", "old")
    assert converter.failure_converter_class is DefaultFailureConverterWithEncodedAttributes
    assert SECRET not in repr(Settings.load())
    monkeypatch.setenv("EVERTURN_ENCRYPTION_COMMAND", "true")
    with pytest.raises(InvalidSetting, match="both set"):
        configured_converter()


def test_a_command_gives_the_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(written(new=NEW).replace(",", "\n"))
    monkeypatch.setenv("EVERTURN_ENCRYPTION_COMMAND", f"cat {shlex.quote(str(tmp_path / 'keys'))}")
    encryption = encryption_of(configured_converter())
    assert encryption
    assert encryption.key_ids == ("new",)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program-at-all", "can't be run: No such file"),
        (f"{sys.executable} -c 'print(\"hush\"); raise SystemExit(3)'", "failed, with exit status 3"),
        ("true", "holds no key"),
        ("cat 'unclosed", "can't be run"),
    ],
)
def test_a_command_that_gives_none_is_refused(monkeypatch: pytest.MonkeyPatch, command: str, said: str) -> None:
    monkeypatch.setenv("EVERTURN_ENCRYPTION_COMMAND", command)
    with pytest.raises(InvalidSetting, match=said) as refused:
        configured_converter()
    assert "hush" not in str(refused.value)


async def test_a_key_that_is_not_known_yet_is_asked_for(bounds: Bounds) -> None:
    keys = {"old": OLD}
    encryption = Encryption(lambda: keys)
    made = await encoded(Encryption({"new": NEW}), plain())
    keys = {"new": NEW, "old": OLD}
    with pytest.raises(InvalidSetting, match="the key 'new'"):  # it has just asked
        await decoded(encryption, made)
    bounds(ask_again_seconds=0.0)
    assert await decoded(encryption, made) == plain()
    assert encryption.key_id == "new"


async def test_an_outage_of_the_command_is_no_key_that_nobody_has(bounds: Bounds) -> None:
    """A worker tries again for as long as it takes: see storage/unreadable.py."""

    def away() -> dict[str, bytes]:
        if asked:
            raise InvalidSetting("It is away.")
        asked.append(True)
        return {"old": OLD}

    asked: list[bool] = []
    bounds(ask_again_seconds=0.0)
    encryption = Encryption(away)
    with pytest.raises(InvalidSetting, match="asking for it failed: It is away") as refused:
        await decoded(encryption, await encoded(Encryption({"new": NEW}), plain()))
    assert isinstance(refused.value.__cause__, OSError)


# ---------------------------------------------------------------- with what users have


class Upside(PayloadCodec):
    async def encode(self, payloads):  # type: ignore[no-untyped-def]
        return [Payload(metadata=payload.metadata, data=payload.data[::-1]) for payload in payloads]

    decode = encode


async def test_it_goes_around_a_codec_of_the_users_own() -> None:
    converter = with_encryption(DataConverter(payload_codec=Upside()), Encryption({"k": NEW}))
    assert isinstance(converter.payload_codec, Codecs)
    (payload,) = await converter.encode(["secret"])
    assert key_id_of(payload) == "k"
    assert (await decoded(Encryption({"k": NEW}), payload)).data == b'"terces"'
    assert await converter.decode([payload]) == ["secret"]
    assert encryption_of(converter)
    assert with_encryption(converter, Encryption({"other": OLD})) is converter


def test_a_failure_converter_of_the_users_own_stays() -> None:
    class Own(DefaultFailureConverter): ...

    converter = with_encryption(DataConverter(failure_converter_class=Own), Encryption({"k": NEW}))
    assert converter.failure_converter_class is Own


@pytest.mark.parametrize("place", ["directory", "memory"])
async def test_artifacts_go_through_the_codec_and_older_ones_are_read(place: str, tmp_path: Path) -> None:
    at = str(tmp_path) if place == "directory" else f"memory://{tmp_path}"
    (result,) = [ToolResult.model_validate({"call_id": "c1", "content": [{"kind": "text", "text": "It is a secret."}]})]
    bare, sealed = Artifacts.at(at), Artifacts.at(at, codec=Encryption({"k": NEW}))
    bare.keep("order", result.model_copy(update={"call_id": "c0"}))
    sealed.keep("order", result)
    read = sealed.read("order", "c1")
    assert read == result
    assert sealed.read("order", "c0")
    if place == "directory":
        assert b"secret" not in (tmp_path / name_of("order", "c1")).read_bytes()
    with pytest.raises(InvalidSetting, match="the key 'k'"):
        bare.read("order", "c1")
    assert sealed.delete("order") == 2
    assert sealed.read("order", "c1") is None
    assert sealed.delete("order") == 0
