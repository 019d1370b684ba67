"""Temporal's external storage, for payloads that are too large for a history: the history holds references.

A directory serves one machine; S3 and Google Cloud Storage use the SDK's own drivers.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from everturn.errors import InvalidSetting
from everturn.storage.directory import Directory, path_segments
from everturn.system import extras

_DIGEST = re.compile("[0-9a-f]{64}")


def open_storage(place: str | Path) -> ExternalStorage:
    """The storage at a directory, `s3://bucket` or `gs://bucket`. Raises InvalidSetting.

    Takes payloads of 256 KiB or more, the SDK's default. For another limit, make your own ExternalStorage.
    """
    return ExternalStorage(drivers=[_make_driver(str(place))])


def _make_driver(place: str) -> StorageDriver:
    if "://" not in place:
        return DirectoryDriver(Path(place))
    url = urlsplit(place)
    if not url.netloc or url.path.strip("/") or url.query:
        raise InvalidSetting(f"The storage {place!r} is not a bucket.", cure="Write s3://bucket or gs://bucket.")
    match url.scheme:
        case "s3":
            return _s3_driver(url.netloc)
        case "gs":
            return _gcs_driver(url.netloc)
        case _:
            raise InvalidSetting(
                f"The storage {place!r} is of an unknown kind.",
                cure="Name a directory, s3://bucket or gs://bucket.",
            )


class DirectoryDriver(StorageDriver):
    """Files named by their SHA-256, in a folder for each conversation: for one machine, or a file system that all
    workers share."""

    def __init__(self, root: Path) -> None:
        self._files = Directory(root, holds="payloads")
        self._place = repr(str(self._files.root))

    def name(self) -> str:
        return "everturn.directory"

    def type(self) -> str:
        return "everturn.directory"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        # Each conversation has its own folder: deleting one conversation's payloads leaves all others'.
        target = context.target
        owner = ""
        if isinstance(target, StorageDriverWorkflowInfo):
            owner = target.id or ""
        return [await asyncio.to_thread(self._store_payload, payload, owner) for payload in payloads]

    async def retrieve(
        self,
        context: StorageDriverRetrieveContext,  # noqa: ARG002
        claims: Sequence[StorageDriverClaim],
    ) -> list[Payload]:
        return [await asyncio.to_thread(self._retrieve_payload, claim) for claim in claims]

    def delete(self, conversation_id: str) -> int:
        """Deletes a conversation's payloads; returns how many there were. Blocks. Raises OSError."""
        return self._files.delete(_owner_folder(conversation_id))

    def _store_payload(self, payload: Payload, owner: str) -> StorageDriverClaim:
        # Deterministic: the same payload is stored once, also when a workflow task is repeated.
        data = payload.SerializeToString(deterministic=True)
        digest = sha256(data).hexdigest()
        name = _file_name(digest, owner)
        try:
            os.utime(self._files.root / name)  # in use again: a cleanup by age must not delete it
        except FileNotFoundError:
            self._files.write(name, data)
        claim_data = {"sha256": digest}
        if owner:
            claim_data["conversation"] = owner
        return StorageDriverClaim(claim_data)

    def _retrieve_payload(self, claim: StorageDriverClaim) -> Payload:
        digest = claim.claim_data.get("sha256", "")
        # A claim comes from a history, which others can write: it must not name any other file.
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{dict(claim.claim_data)!r:.200} is not a reference into the storage in {self._place}")
        try:
            data = self._files.read(_file_name(digest, claim.claim_data.get("conversation", "")))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"The storage in {self._place} lacks the payload {digest}: it was deleted, or stored elsewhere"
            ) from None
        if sha256(data).hexdigest() != digest:
            raise ValueError(f"The file of payload {digest} in {self._place} was changed")
        return Payload.FromString(data)


def _file_name(digest: str, owner: str) -> str:
    folder = _owner_folder(owner) if owner else digest[:2]
    return f"{folder}/{digest}"


def _owner_folder(owner: str) -> str:
    return f"of/{path_segments(owner)}"


async def delete_stored(
    driver: StorageDriver, claims: Sequence[StorageDriverClaim], *, owners: Sequence[str]
) -> tuple[int, str]:
    """Deletes these conversations' payloads. Returns how many it deleted and, in words, what is left. Raises what
    the storage raises."""
    if isinstance(driver, DirectoryDriver):
        return sum([await asyncio.to_thread(driver.delete, owner) for owner in owners]), ""
    delete = getattr(getattr(driver, "_client", None), "delete", None)
    if delete is None:
        if not claims:
            return 0, ""
        return 0, f"{len(claims)} payloads in the external storage {driver.name()!r}"
    # If the owner's id made a name too long, the object is named by its content alone, and others may share it.
    own = [claim for claim in claims if "/wi/" in _object_of(claim)]
    await asyncio.gather(*(delete(claim.claim_data["bucket"], _object_of(claim)) for claim in own))
    shared = len(claims) - len(own)
    return len(own), f"{shared} payloads in {driver.name()!r} that other conversations may share" if shared else ""


def _object_of(claim: StorageDriverClaim) -> str:
    return claim.claim_data.get("key") or claim.claim_data.get("object_name", "")


# ---------------------------------------------------------------- buckets


class _OpenedLater:
    """The client of a bucket: opened when it is first needed, and closed with the event loop."""

    def __init__(self, opened: Callable[[], AsyncGenerator[Any]]) -> None:
        self._opened = opened
        self._opening: asyncio.Task[Any] | None = None
        self._generator: AsyncGenerator[Any] | None = None

    async def object_exists(self, **location: Any) -> bool:
        exists: bool = await (await self._open_client()).object_exists(**location)
        return exists

    async def put_object(self, **location: Any) -> None:
        await (await self._open_client()).put_object(**location)

    async def get_object(self, **location: Any) -> bytes:
        data: bytes = await (await self._open_client()).get_object(**location)
        return data

    async def delete(self, bucket: str, name: str) -> None:
        await (await self._open_client()).delete(bucket, name)

    async def _open_client(self) -> Any:
        if self._opening is None or self._opening.get_loop() is not asyncio.get_running_loop():
            self._opening = asyncio.create_task(self._open_anew())
        return await asyncio.shield(self._opening)

    async def _open_anew(self) -> Any:
        # An event loop that shuts down closes its generators, and these close their clients.
        self._generator = self._opened()
        try:
            return await anext(self._generator)
        except BaseException:
            self._opening = None  # the next call tries again
            raise


def _s3_driver(bucket: str) -> StorageDriver:
    """Address, region and credentials come as for all of AWS's tools: AWS_ENDPOINT_URL_S3, AWS_PROFILE and the like."""
    try:
        import aioboto3
        from temporalio.contrib.aws.s3driver import S3StorageDriver, S3StorageDriverClient
        from temporalio.contrib.aws.s3driver.aioboto3 import new_aioboto3_client
    except ImportError as error:
        raise _lacking_package(f"s3://{bucket}", "s3", error) from None

    class Client(_OpenedLater, S3StorageDriverClient): ...

    async def open_client() -> AsyncGenerator[S3StorageDriverClient]:
        async with aioboto3.Session().client("s3") as client:
            client_with_delete = new_aioboto3_client(client)
            client_with_delete.delete = lambda bucket, key: client.delete_object(Bucket=bucket, Key=key)  # type: ignore[attr-defined]
            yield client_with_delete

    return S3StorageDriver(Client(open_client), bucket)


def _gcs_driver(bucket: str) -> StorageDriver:
    """Credentials come as for all of Google's tools: GOOGLE_APPLICATION_CREDENTIALS and the like."""
    try:
        from gcloud.aio.storage import Storage
        from temporalio.contrib.gcp.gcsdriver import GCSStorageDriver, GCSStorageDriverClient
        from temporalio.contrib.gcp.gcsdriver.gcloud_aio import new_gcloud_aio_client
    except ImportError as error:
        raise _lacking_package(f"gs://{bucket}", "gcs", error) from None

    class Client(_OpenedLater, GCSStorageDriverClient): ...

    async def open_client() -> AsyncGenerator[GCSStorageDriverClient]:
        async with Storage() as client:
            client_with_delete = new_gcloud_aio_client(client)
            client_with_delete.delete = client.delete  # type: ignore[attr-defined]
            yield client_with_delete

    return GCSStorageDriver(Client(open_client), bucket)


def _lacking_package(place: str, extra: str, error: ImportError) -> InvalidSetting:
    return InvalidSetting(
        f"The storage {place} needs {error.name or 'a package'}, which is not installed.",
        cure=extras.install(extra),
    )
