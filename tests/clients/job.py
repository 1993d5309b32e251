# SPDX-License-Identifier: Apache-2.0
"""A job with a real client: runs client_NAME.py in the Python that has its packages, and says what the client returned.

    job.py NAME

Lines on stdin, each a JSON object, each answered by one line:

    {"do": "write", "directory": D, "bytes": N, "how": H}                 the dataset, by the format's own writer
    {"do": "order", "directory": D, "epochs": E, "how": H}                names of files as one reader reads them, if that is known
    {"do": "read", "directory": D, "readers": R, "epoch": E, "how": H}    an epoch by R processes

A client is a module with write(directory, size, how) and read(directory, part, parts, epoch, how), which yields (key, content)
of its part of the records; order(directory, epoch, how) where files are read one after the other. HAS_WORKERS: it makes processes
itself, so one process asks for all parts. What the library itself prints goes to stderr.

Readers are made by fork() after the imports, for each epoch anew: nothing of an epoch before is left in them but what the kernel has.
"""
import hashlib
import importlib
import json
import os
import sys
import time
import traceback


def parts_of(client, request):
    """(part, parts) of each process."""
    if getattr(client, "HAS_WORKERS", False):
        return [(0, request["readers"])]
    return [(part, request["readers"]) for part in range(request["readers"])]


def content_of(client, request, part, parts):
    sums, size = {}, 0
    for key, content in client.read(request["directory"], part, parts, request["epoch"], request["how"]):
        digest = hashlib.sha256(content).hexdigest()
        if sums.setdefault(str(key), digest) != digest:
            raise ValueError(f"record {key} is not the same each time")
        size += memoryview(content).nbytes
    return {"sums": sums, "bytes": size}


def reader(client, request, place, start, out):
    """A process of its own; ends with it."""
    code = 1
    try:
        os.close(start[1])
        os.read(start[0], 1)
        answer = content_of(client, request, *place)
        code = 0
    except BaseException:
        answer = {"error": traceback.format_exc()}
    with os.fdopen(out, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    sys.stderr.flush()
    os._exit(code)


def read(client, request):
    start, outs, pids = os.pipe(), [], []
    for place in parts_of(client, request):
        answer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(answer[0])
            reader(client, request, place, start, answer[1])
        os.close(answer[1])
        outs.append(answer[0])
        pids.append(pid)
    os.close(start[0])
    begin = time.monotonic()
    os.close(start[1])
    found, size = {}, 0
    for out in outs:
        with os.fdopen(out, encoding="utf-8") as file:
            text = file.read()
        answer = json.loads(text) if text else {"error": "a reader died"}
        if "error" in answer:
            return answer
        if any(found.setdefault(key, digest) != digest for key, digest in answer["sums"].items()):
            return {"error": "a record is not the same for two readers"}
        size += answer["bytes"]
    seconds = time.monotonic() - begin
    for pid in pids:
        os.waitpid(pid, 0)
    text = "".join(f"{key} {found[key]}\n" for key in sorted(found))
    return {"records": len(found), "bytes": size, "seconds": seconds, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def answer_to(client, request):
    try:
        if request["do"] == "write":
            client.write(request["directory"], request["bytes"], request["how"])
            return {}
        if request["do"] == "order":
            return {"names": [name for epoch in range(request["epochs"])
                              for name in client.order(request["directory"], epoch, request["how"])]}
        return read(client, request)
    except Exception:
        return {"error": traceback.format_exc()}


def main():
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        client = importlib.import_module("client_" + sys.argv[1])
    except Exception:
        print(json.dumps({"error": traceback.format_exc()}), file=said, flush=True)
        return 1
    print(json.dumps({"has_order": hasattr(client, "order")}), file=said, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer_to(client, json.loads(line))), file=said, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
