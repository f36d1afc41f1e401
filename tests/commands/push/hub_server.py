"""A stand-in of the Hugging Face hub on this machine: the part of its interface that `push` and `pull` use."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

WRITE, READ, WRONG = "hf_write_0123456789abcdef", "hf_read_0123456789abcdef", "hf_wrong_0123456789abcdef"


class Repository:
    """Files of each commit, newest last."""

    def __init__(self, private: bool, files: dict[str, bytes] | None = None) -> None:
        self.private = private
        self.commits: list[tuple[str, str, dict[str, bytes]]] = []
        self.commit("initial", {".gitattributes": b"*.safetensors filter=lfs\n", **(files or {})})

    def commit(self, message: str, files: dict[str, bytes]) -> str:
        oid = hashlib.sha1(json.dumps([message, len(self.commits), sorted(files)]).encode()).hexdigest()
        self.commits.append((oid, message, files))
        return oid

    def find(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        found = [(oid, files) for oid, _, files in self.commits if revision in (oid, "main")]
        return found[-1] if found else None

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1][2]


class Hub(ThreadingHTTPServer):
    """Repositories by name, and what was asked.

    Attributes:
        cut: bytes after which the next download of a large file ends, once.
        corrupt: whether downloads have a wrong byte.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.ranges: list[str] = []
        self.cut: int | None = None
        self.corrupt = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running() -> Iterator[Hub]:
    """A hub that answers inside the block."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


def entry(name: str, content: bytes, key: str) -> dict[str, Any]:
    """A file as listings describe it."""
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    described: dict[str, Any] = {key: name, "size": len(content), "oid": blob, "blobId": blob, "type": "file"}
    if name.endswith(".safetensors"):
        sha256 = hashlib.sha256(content).hexdigest()
        described["lfs"] = {"oid": sha256, "sha256": sha256, "size": len(content), "pointerSize": 130}
    return described


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, value: Any, status: int = 200, **headers: str) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, status: int, code: str, message: str) -> None:
        self.answer({"error": message}, status, X_Error_Code=code, X_Error_Message=message)

    def body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    @property
    def token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def allowed(self, *, write: bool) -> bool:
        if self.token == WRONG:
            self.refuse(401, "", "Invalid credentials in Authorization header")
        elif write and self.token != WRITE:
            self.refuse(403, "", "You don't have the rights to create a model under this namespace")
        else:
            return True
        return False

    def repository(self, name: str) -> Repository | None:
        found = self.server.repositories.get(name)
        if found is None or (found.private and self.token not in (WRITE, READ)):
            self.refuse(401 if not self.token else 404, "RepoNotFound", "Repository not found")
            return None
        return found

    def do_POST(self) -> None:
        self.server.requests.append(f"POST {self.path}")
        body, path = self.body(), urlsplit(self.path).path
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if not self.allowed(write=True):
            return None
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, [asked.get("organization"), asked["name"]]))
            private = asked.get("private", False) or asked.get("visibility") == "private"
            self.server.repositories[name] = Repository(private)
            return self.answer({"url": f"{self.server.address}/{name}", "name": name})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/\w+", path):
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            return self.answer({"files": modes})
        if found := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            objects = json.loads(body)["objects"]
            for each in objects:
                if each["oid"] not in self.server.large:
                    each["actions"] = {"upload": {"href": f"{self.server.address}/upload/{each['oid']}"}}
            return self.answer({"transfer": "basic", "objects": objects})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            if (repository := self.repository(found[1])) is None:
                return None
            files, message = dict(repository.files), ""
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "header":
                    message = value["summary"]
                elif line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self.server.large[value["oid"]]
                elif line["key"] == "deletedFile":
                    del files[value["path"]]
            oid = repository.commit(message, files)
            return self.answer({"commitUrl": f"{self.server.address}/{found[1]}/commit/{oid}", "commitOid": oid})
        return self.refuse(404, "EntryNotFound", "Not found")

    def do_PUT(self) -> None:
        content = self.body()
        oid = self.path.rpartition("/")[2]
        self.server.requests.append(f"PUT {self.path}")
        if hashlib.sha256(content).hexdigest() != oid:
            return self.refuse(400, "", "wrong content")
        self.server.large[oid] = content
        return self.answer({}, ETag='"1"')

    def do_GET(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        path = unquote(urlsplit(self.path).path)
        if not self.allowed(write=False):
            return None
        listed = re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/(revision|tree)/(\w+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", path)
        match = listed or file
        if match is None:
            return self.refuse(404, "EntryNotFound", "Not found")
        if (repository := self.repository(match[1])) is None:
            return None
        found = repository.find((match[3] if listed else match[2]) or "main")
        if found is None:
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        oid, files = found
        if listed and match[2] == "tree":
            return self.answer([entry(name, content, "path") for name, content in files.items()])
        if listed:
            siblings = [entry(name, content, "rfilename") for name, content in files.items()]
            return self.answer(
                {"id": match[1], "sha": oid, "private": repository.private, "gated": False, "siblings": siblings}
            )
        content = files[match[3]]
        hashed = entry("x", content, "path")
        etag = hashlib.sha256(content).hexdigest() if match[3].endswith(".safetensors") else hashed["oid"]
        headers = {"ETag": f'"{etag}"', "X_Repo_Commit": oid, "Accept_Ranges": "bytes"}
        if self.server.corrupt:
            content = content[:-1] + bytes([content[-1] ^ 1])
        if self.command == "GET" and (wanted := self.headers.get("Range")):
            self.server.ranges.append(wanted)
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
            size = len(content)
            return self.answer(content[start:], 206, Content_Range=f"bytes {start}-{size - 1}/{size}", **headers)
        if self.command == "GET" and self.server.cut is not None and match[3].endswith(".safetensors"):
            self.send_response(200)
            for name, text in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name.replace("_", "-"), text)
            self.end_headers()
            self.wfile.write(content[: self.server.cut])
            self.server.cut = None
            self.close_connection = True
            return None
        return self.answer(content, **headers)

    do_HEAD = do_GET  # noqa: N815  # which http.server calls
