"""Detect external data in an ONNX file from its protobuf encoding, without the `onnx` package."""

from pathlib import Path

from sightline.errors import BundleError

_Fields = dict[int, str]

# For each message in onnx.proto, the fields that lead to a tensor, by number.
_MESSAGES: dict[str, _Fields] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_FIXED = {1: 8, 5: 4}  # sizes in bytes of the fixed-size wire types


def check_self_contained(path: Path) -> None:
    """Reject an ONNX file that stores tensors in other files, because those are not verified."""
    try:
        external = _has_external_data(path.read_bytes())
    except (ValueError, IndexError) as error:
        raise BundleError(f"{path}: not an ONNX file", "Copy or export the bundle again.") from error
    if external:
        raise BundleError(
            f"{path}: stores tensors in other files (external data)", "Export each graph as a single ONNX file."
        )


def _has_external_data(data: bytes) -> bool:
    """Walk all messages that lead to tensors; raises `ValueError` or `IndexError` if the encoding is broken."""
    to_visit = [("model", 0, len(data))]
    while to_visit:
        message, at, end = to_visit.pop()
        fields = _MESSAGES[message]
        while at < end:
            key, at = _varint(data, at)
            number, wire_type = key >> 3, key & 7
            if wire_type == 0:
                value, at = _varint(data, at)
                if message == "tensor" and number == _DATA_LOCATION and value:
                    return True
            elif wire_type == 2:
                length, at = _varint(data, at)
                if message == "tensor" and number == _EXTERNAL_DATA:
                    return True
                if number in fields:
                    to_visit.append((fields[number], at, at + length))
                at += length
            elif wire_type in _FIXED:
                at += _FIXED[wire_type]
            else:
                raise ValueError(f"unknown wire type {wire_type}")
        if at != end:
            raise ValueError("a field extends past the end of its message")
    return False


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that starts at this offset, and the offset after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is longer than ten bytes")
