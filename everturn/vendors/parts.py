"""Texts, images and documents as vendors write them, read into parts. What is none of these is kept as it came."""

from __future__ import annotations

import base64
from typing import Any

from everturn.records import Document, Image, Opaque, Part, Text

Json = dict[str, Any]


def openai_part(block: Json) -> Part:
    """A content part of Chat or of Responses."""
    match block.get("type"):
        case "text" | "input_text" | "output_text" | "refusal":
            text = str(block.get("text") or block.get("refusal") or "")
            return Text(text=text, extra=extra_beside(block, "type", "text", "refusal", "annotations", "logprobs"))
        case "image_url" | "input_image":
            url = block.get("image_url")
            fields = block
            if isinstance(url, dict):
                fields = url
                url = fields.get("url")
            extra = extra_beside(fields, "type", "url", "image_url", "file_id")
            if extra.get("detail") == "auto":
                del extra["detail"]
            if isinstance(url, str) and url:
                return Image(extra=extra, **_source_fields(url))
        case "file" | "input_file":
            file = block.get("file") if isinstance(block.get("file"), dict) else block
            assert isinstance(file, dict)
            name = str(file.get("filename") or "")
            url = file.get("file_data") or file.get("file_url")
            if isinstance(url, str) and url:
                extra = extra_beside(file, "type", "filename", "file_data", "file_url", "file_id")
                return Document(name=name, extra=extra, **_source_fields(url))
    return Opaque(data=block)


def anthropic_part(block: Json) -> Part:
    source = block.get("source")
    if not isinstance(source, dict):
        source = {}
    kind = block.get("type")
    if kind == "text":
        return Text(text=str(block.get("text") or ""), extra=extra_beside(block, "type", "text"))
    extra = extra_beside(block, "type", "source", "title")  # citations, context, cache_control
    if kind == "document" and source.get("type") == "text":
        data = base64.b64encode(str(source.get("data")).encode()).decode()
        return Document(data=data, media_type="text/plain", name=str(block.get("title") or ""), extra=extra)
    if kind in {"image", "document"} and source.get("type") in {"base64", "url"}:
        where = {"url": source.get("url")}
        if source["type"] == "base64":
            where = {"data": source.get("data"), "media_type": source.get("media_type")}
        if kind == "image":
            return Image(**where, extra=extra)
        return Document(**where, name=str(block.get("title") or ""), extra=extra)
    return Opaque(data=block)


def gemini_part(part: Json) -> Part:
    if isinstance(part.get("text"), str):
        return Text(text=part["text"], extra=extra_beside(part, "text"))
    inline = part.get("inlineData")
    file = part.get("fileData")
    if isinstance(inline, dict) and inline.get("data") and inline.get("mimeType"):
        return media_part(str(inline["mimeType"]), data=inline["data"], extra=extra_beside(part, "inlineData"))
    if isinstance(file, dict) and file.get("fileUri"):
        return media_part(str(file.get("mimeType") or ""), url=file["fileUri"], extra=extra_beside(part, "fileData"))
    return Opaque(data=part)


def extra_beside(part: Json, *names: str) -> Json:
    """What is beside a part's own fields, such as videoMetadata or cache_control. Nulls say nothing."""
    return {key: value for key, value in part.items() if key not in names and value is not None}


def media_part(media_type: str, **source: Any) -> Image | Document:
    kind = Image if media_type.lower().startswith("image/") else Document
    return kind(media_type=media_type or None, **source)


def _source_fields(url: str) -> dict[str, Any]:
    """The fields of a part that say where its content is: of a `data:` URL, the content itself."""
    header, _, data = url.partition(",")
    if not (data and header.startswith("data:") and header.endswith(";base64")):
        return {"url": url}
    return {"data": data, "media_type": header[5:].removesuffix(";base64") or "application/octet-stream"}
