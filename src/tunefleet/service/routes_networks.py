"""Networks and their uploads in parts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response

from tunefleet.errors import TunefleetError
from tunefleet.service.asking import is_network
from tunefleet.service.caller import ByUser
from tunefleet.service.problems import Refused, not_found
from tunefleet.service.uploads import Upload
from tunefleet.service.values import (
    AskedUpload,
    NetworkEntry,
    NetworkPage,
    UploadStatus,
)
from tunefleet.store import KeptNetwork

router = APIRouter(prefix="/v1", tags=["networks"])

_Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
_Limit = Annotated[int, Query(ge=1, le=100)]


@router.post("/uploads", status_code=201)
def begin_upload(
    asked: AskedUpload, request: Request, response: Response, caller: ByUser
) -> UploadStatus:
    """Announce a file. The response has the network if the file was uploaded before, else the
    offset to continue from."""
    known = request.app.state.store.holdings.network(caller.user.name, asked.digest)
    response.headers["Location"] = f"/v1/uploads/{asked.digest}"
    if known is not None:
        response.status_code = 200
        return _complete(request, known)
    upload = Upload(asked.digest, asked.name, asked.size)
    offset = request.app.state.uploads.begin(caller.user, upload)
    return UploadStatus(digest=asked.digest, offset=offset, size=asked.size)


@router.get("/uploads/{digest}")
def upload_status(digest: _Digest, request: Request, caller: ByUser) -> UploadStatus:
    """The number of bytes received."""
    known = request.app.state.store.holdings.network(caller.user.name, digest)
    if known is not None:
        return _complete(request, known)
    offset, upload = request.app.state.uploads.offset(caller.user, digest)
    return UploadStatus(digest=digest, offset=offset, size=upload.size)


@router.patch(
    "/uploads/{digest}",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/offset+octet-stream": {
                    "schema": {"type": "string", "format": "binary"}
                }
            },
        }
    },
)
async def send_part(
    digest: _Digest,
    request: Request,
    caller: ByUser,
    upload_offset: Annotated[int, Header(ge=0, le=2**53)],
) -> UploadStatus:
    """Append bytes at `Upload-Offset`, which must be the number of bytes received. After the
    last part the file is compared with its digest and imported once, in a sandbox, which takes
    seconds; it is then a network, or refused with the reason. A part without bytes repeats this."""
    uploads, name = request.app.state.uploads, caller.user.name
    if not request.headers.get("content-type", "").startswith("application/offset+octet-stream"):
        raise Refused(
            415,
            "a part is application/offset+octet-stream",
            cure="say so in its Content-Type",
        )
    there, upload = await uploads.append(caller.user, digest, upload_offset, request.stream())
    if there < upload.size:
        return UploadStatus(digest=digest, offset=there, size=upload.size)
    try:
        network = await uploads.complete(caller.user, upload)
    except (Refused, TunefleetError) as error:
        request.app.state.audit.keep(name, "refused upload", digest=digest, why=str(error))
        raise
    request.app.state.audit.keep(name, "upload", digest=digest, name=upload.name, bytes=upload.size)
    return _complete(request, network)


@router.get("/networks")
def list_networks(
    request: Request,
    caller: ByUser,
    cursor: Annotated[str, Query(max_length=64)] = "",
    limit: _Limit = 50,
) -> NetworkPage:
    """One's networks, ordered by their digests."""
    found = request.app.state.store.holdings.networks(caller.user.name, cursor, limit)
    more = found[-1].digest if len(found) == limit else None
    return NetworkPage(networks=[_entry(request, network) for network in found], next=more)


@router.get("/networks/{digest}")
def get_network(digest: _Digest, request: Request, caller: ByUser) -> NetworkEntry:
    """One network."""
    network = request.app.state.store.holdings.network(caller.user.name, digest)
    if network is None:
        raise not_found(f"network {digest[:12]}")
    return _entry(request, network)


@router.delete("/networks/{digest}", status_code=204)
def delete_network(digest: _Digest, request: Request, caller: ByUser) -> None:
    """Delete a network. Jobs under way keep its file until they end."""
    request.app.state.store.holdings.remove_network(caller.user.name, digest)
    request.app.state.audit.keep(caller.user.name, "delete network", digest=digest)


def _entry(request: Request, network: KeptNetwork) -> NetworkEntry:
    home = request.app.state.home.root
    return NetworkEntry(
        digest=network.digest,
        name=network.name,
        kind="network" if is_network(home, network) else "arrays",
        bytes=network.size,
        created_at=network.created_at,
    )


def _complete(request: Request, network: KeptNetwork) -> UploadStatus:
    return UploadStatus(
        digest=network.digest,
        offset=network.size,
        size=network.size,
        network=_entry(request, network),
    )
