#!/usr/bin/env python3
"""make_parquet.py OUT - Parquet files by pyarrow for tests/data/test_parquet.c: every encoding, page version, codec and nesting that the reader
claims, small, with the rows that pyarrow itself reads from them (NAME.jsonl). Files named refused_WORD_... must be refused with WORD in the
message. Run where pyarrow is installed, with OUT = tests/data/parquet; the content is fixed, so the same pyarrow gives the same bytes."""
import json
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

random.seed(1)
WORDS = "the head drafts what the target would say äöü 你好 🙂".split()


def text():
    return " ".join(random.choice(WORDS) for _ in range(random.randint(0, 12)))


def maybe(value):
    return None if random.random() < 0.25 else value


def flat(n):
    return pa.table({
        "id": pa.array(range(n), pa.int64()),
        "flag": pa.array([maybe(random.random() < 0.5) for _ in range(n)], pa.bool_()),
        "small": pa.array([maybe(random.randint(-2**31, 2**31 - 1)) for _ in range(n)], pa.int32()),
        "near": pa.array([1000 + i * 3 + random.randint(0, 2) for i in range(n)], pa.int64()),
        "unsigned": pa.array([maybe(random.randint(0, 2**32 - 1)) for _ in range(n)], pa.uint32()),
        "single": pa.array([maybe(random.randint(-800, 800) / 8) for _ in range(n)], pa.float32()),
        "double": pa.array([maybe(random.random()) for _ in range(n)], pa.float64()),
        "text": pa.array([maybe(text()) for _ in range(n)], pa.string()),
        "sorted": pa.array(sorted(text() for _ in range(n)), pa.string()),
        "fixed": pa.array([maybe(b"%05d" % random.randint(0, 99999)) for _ in range(n)], pa.binary(5)),
    })


CALL = pa.struct([("name", pa.string()), ("arguments", pa.map_(pa.string(), pa.int64()))])
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(CALL))])


def nested(n):
    def call():
        return {"name": maybe("f"), "arguments": maybe([(k, maybe(i)) for i, k in enumerate("abc"[:random.randint(0, 3)])])}

    def message():
        return {"role": "user", "content": maybe(text()), "tool_calls": maybe([call() for _ in range(random.randint(0, 3))])}

    return pa.table({
        "messages": pa.array([maybe([maybe(message()) for _ in range(random.randint(0, 5))]) for _ in range(n)], pa.list_(MESSAGE)),
        "grid": pa.array([maybe([maybe([maybe(random.random()) for _ in range(random.randint(0, 3))]) for _ in range(random.randint(0, 3))]) for _ in range(n)],
                         pa.list_(pa.list_(pa.float64()))),
        "deep": pa.array([maybe({"er": maybe({"est": maybe(1)})}) for _ in range(n)], pa.struct([("er", pa.struct([("est", pa.int64())]))])),
        "enable_thinking": pa.array([maybe(True) for _ in range(n)], pa.bool_()),
    })


def plain(value, kind):
    """As JSON has it: bytes are text, maps are objects."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {k: plain(v, kind.item_type) for k, v in value}
    if pa.types.is_list(kind):
        return [plain(v, kind.value_type) for v in value]
    if pa.types.is_struct(kind):
        return {f.name: plain(value[f.name], f.type) for f in kind}
    return value.decode() if isinstance(value, bytes) else value


def write(out, name, table, **options):
    pq.write_table(table, out / f"{name}.parquet", **options)
    if name.startswith("refused_"):
        return
    with open(out / f"{name}.jsonl", "w", encoding="utf-8") as lines:
        for row in pq.read_table(out / f"{name}.parquet").to_pylist():
            lines.write(json.dumps({f.name: plain(row[f.name], f.type) for f in table.schema}, ensure_ascii=False) + "\n")


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    rows, chats = flat(300), nested(150)
    for i, version in enumerate(("1.0", "2.0")):
        for codec in ("none", "snappy", "gzip", "zstd"):
            common = dict(compression=codec, data_page_version=version, data_page_size=600, write_batch_size=50)
            write(out, f"flat_v{i + 1}_{codec}", rows, row_group_size=120, **common)
            write(out, f"nested_v{i + 1}_{codec}", chats, row_group_size=70, **common)
    delta = {"id": "DELTA_BINARY_PACKED", "small": "DELTA_BINARY_PACKED", "near": "DELTA_BINARY_PACKED", "unsigned": "DELTA_BINARY_PACKED", "single": "BYTE_STREAM_SPLIT",
             "double": "BYTE_STREAM_SPLIT", "text": "DELTA_LENGTH_BYTE_ARRAY", "sorted": "DELTA_BYTE_ARRAY", "fixed": "PLAIN", "flag": "PLAIN"}
    for i, version in enumerate(("1.0", "2.0")):
        write(out, f"delta_v{i + 1}", rows, use_dictionary=False, column_encoding=delta, compression="none", data_page_version=version, row_group_size=150)
    write(out, "groups_of_one", chats.slice(0, 12), row_group_size=1)
    write(out, "old_lists", chats.select(["grid"]), use_compliant_nested_type=False)
    write(out, "refused_brotli_flat", rows, compression="brotli")
    write(out, "refused_LZ4_flat", rows, compression="lz4")


main()
